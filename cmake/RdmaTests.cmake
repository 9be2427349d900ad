# Programs for `make test-rdma`, which runs them in a virtual machine with soft-RoCE: ctran_rdma_tests
# of tests/rdma, with the schedules of tests/unit/verbs, the cases of tests/unit/support and the transports of
# tests/unit/rdma, ctran-verbs-bench of benchmarks/verbs and ctran-transport-bench of
# benchmarks/transport.

file(GLOB rdma_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/rdma/*.cpp)
set(verbs_tests ${PROJECT_SOURCE_DIR}/tests/unit/verbs)
set(support ${PROJECT_SOURCE_DIR}/tests/unit/support)
add_executable(ctran_rdma_tests ${rdma_sources} ${verbs_tests}/side.cpp ${verbs_tests}/schedule.cpp
  ${support}/ranks.cpp ${PROJECT_SOURCE_DIR}/tests/unit/rdma/transport_test.cpp)
target_link_libraries(ctran_rdma_tests PRIVATE own_code cases ctran GTest::gtest GTest::gtest_main)
# Compiled apart: with REUSE_FROM ctran_tests that would have to be built first.
target_precompile_headers(ctran_rdma_tests PRIVATE ${test_headers})
target_compile_options(ctran_rdma_tests PRIVATE $<$<CONFIG:RelWithDebInfo>:-O0>)

file(GLOB verbs_bench_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/benchmarks/verbs/*.cpp)
add_executable(ctran-verbs-bench ${verbs_bench_sources})
target_link_libraries(ctran-verbs-bench PRIVATE own_code ctran)

add_executable(ctran-transport-bench
  ${PROJECT_SOURCE_DIR}/benchmarks/transport/transport_bench.cpp)
target_link_libraries(ctran-transport-bench PRIVATE own_code ctran)

list(APPEND programs ctran_rdma_tests ctran-verbs-bench ctran-transport-bench)

# RdmaTransportBench, where Google Benchmark is installed (Debian: libbenchmark-dev). It has the
# transport's source itself: with libtorchcomms it would load torch.
find_package(benchmark QUIET)
if(benchmark_FOUND)
  add_executable(RdmaTransportBench
    ${PROJECT_SOURCE_DIR}/benchmarks/transport/RdmaTransportBench.cc
    ${PROJECT_SOURCE_DIR}/torchcomms/csrc/transport/RdmaTransport.cpp)
  target_include_directories(RdmaTransportBench PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(RdmaTransportBench PRIVATE own_code ctran benchmark::benchmark)
  list(APPEND programs RdmaTransportBench)
endif()
