# ctran_tests: one GoogleTest binary of tests/unit, and of tests/kernels (protocols of device code,
# on the host).

file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/tests/unit/*.cpp ${PROJECT_SOURCE_DIR}/tests/kernels/*.cpp)
list(FILTER test_sources EXCLUDE REGEX "/tests/kernels/write_plans/")
if(SANITIZE STREQUAL "thread")
  # Where there is one thread there are no races.
  list(FILTER test_sources EXCLUDE REGEX "/tests/unit/(plan|reduce)/")
endif()
if(NOT test_sources)
  message(STATUS "tests/unit has no sources: no ctran_tests")
  return()
endif()

find_package(GTest)
if(NOT GTest_FOUND)
  message(FATAL_ERROR "BUILD_TESTS needs GoogleTest (Debian, Ubuntu: apt-get install libgtest-dev).")
endif()

# What results are compared with is not what is tested, and would take sanitizers longer than all else.
set(case_sources
  ${PROJECT_SOURCE_DIR}/tests/unit/support/cases.cpp
  ${PROJECT_SOURCE_DIR}/tests/unit/support/reference.cpp)
list(REMOVE_ITEM test_sources ${case_sources})
add_library(cases OBJECT ${case_sources})
target_link_libraries(cases PRIVATE own_code ctran)
if(SANITIZE)
  target_compile_options(cases PRIVATE -fno-sanitize=all -O2)
endif()

add_executable(ctran_tests ${test_sources})
target_link_libraries(ctran_tests
  PRIVATE own_code cases ctran nccl_plugin GTest::gtest GTest::gtest_main)
file(GLOB plugin_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/unit/nccl_plugin/*.cpp)
set_property(SOURCE ${plugin_tests}
  APPEND PROPERTY COMPILE_DEFINITIONS NCCL_PLUGIN="$<TARGET_FILE:nccl_plugin>")
# A third of the time to compile; what they test has options of its own.
target_compile_options(ctran_tests PRIVATE $<$<CONFIG:RelWithDebInfo>:-O0>)
set(test_headers
  <algorithm> <atomic> <functional> <map> <memory> <string> <thread> <vector> <gtest/gtest.h>)
target_precompile_headers(ctran_tests PRIVATE ${test_headers})
compile_folders_together(ctran_tests kernels)

# A libibverbs.so.1 of our own, which tests/unit/verbs loads.
file(GLOB verbs_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/standins/verbs/*.cpp)
add_library(stand_in_verbs SHARED ${verbs_sources})
target_link_libraries(stand_in_verbs PRIVATE own_code)
set_target_properties(stand_in_verbs PROPERTIES
  OUTPUT_NAME ibverbs SOVERSION 1
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/standins
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/tests/standins/verbs/verbs.map)
target_link_options(stand_in_verbs PRIVATE
  -Wl,--version-script=${PROJECT_SOURCE_DIR}/tests/standins/verbs/verbs.map)
add_dependencies(ctran_tests stand_in_verbs)
set_property(SOURCE ${PROJECT_SOURCE_DIR}/tests/unit/verbs/verbs_fixture.cpp
  APPEND PROPERTY COMPILE_DEFINITIONS STAND_IN_VERBS="$<TARGET_FILE:stand_in_verbs>")

# One small program that links the library, instead of loading it; see IBVERBX_BUILD_RDMA_CORE. It is
# linked to rdma-core's where that is installed, and runs on the stand-in.
if(NOT SANITIZE)
  set(base ${PROJECT_SOURCE_DIR}/ctran/base)
  add_executable(verbs_linked ${PROJECT_SOURCE_DIR}/tests/verbs_linked/main.cpp
    ${PROJECT_SOURCE_DIR}/ctran/verbs/library.cpp ${PROJECT_SOURCE_DIR}/ctran/verbs/objects.cpp
    ${base}/config.cpp ${base}/config_sources.cpp ${base}/error.cpp ${base}/json.cpp ${base}/log.cpp)
  find_library(IBVERBS_LIBRARY NAMES ibverbs libibverbs.so.1)
  if(IBVERBS_LIBRARY)
    target_link_libraries(verbs_linked PRIVATE own_code ${CMAKE_DL_LIBS} ${IBVERBS_LIBRARY})
    add_dependencies(verbs_linked stand_in_verbs)
  else()
    target_link_libraries(verbs_linked PRIVATE own_code ${CMAKE_DL_LIBS} stand_in_verbs)
  endif()
  target_compile_definitions(verbs_linked PRIVATE IBVERBX_BUILD_RDMA_CORE)
  add_test(NAME VerbsLinked COMMAND verbs_linked)
  set_tests_properties(VerbsLinked PROPERTIES
    TIMEOUT 60 ENVIRONMENT "LD_LIBRARY_PATH=$<TARGET_FILE_DIR:stand_in_verbs>")
endif()

# A driver of our own for GPUs and its compiler, which tests/unit/support/stand_ins.cpp loads.
add_library(stand_in_cuda SHARED
  ${PROJECT_SOURCE_DIR}/tests/standins/cuda.cpp ${PROJECT_SOURCE_DIR}/tests/standins/cuda_absent.cpp)
add_library(stand_in_nvrtc SHARED ${PROJECT_SOURCE_DIR}/tests/standins/nvrtc.cpp)
foreach(library stand_in_cuda stand_in_nvrtc)
  target_link_libraries(${library} PRIVATE own_code ctran)
  # Functions of the driver that there are not ignore what they are given.
  target_compile_options(${library} PRIVATE -Wno-unused-parameter)
  set_target_properties(${library} PROPERTIES
    CXX_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/standins)
  add_dependencies(ctran_tests ${library})
endforeach()
set_property(SOURCE ${PROJECT_SOURCE_DIR}/tests/unit/support/stand_ins.cpp
  APPEND PROPERTY COMPILE_DEFINITIONS
  STAND_IN_CUDA="$<TARGET_FILE:stand_in_cuda>" STAND_IN_NVRTC="$<TARGET_FILE:stand_in_nvrtc>")

# Its memory about a large allocation is written, not mapped anew: the page faults of that took three
# quarters of the time.
set(tsan_options halt_on_error=1 second_deadlock_stack=1 die_after_fork=0 atexit_sleep_ms=20
  clear_shadow_mmap_threshold=2097152)
string(JOIN ":" tsan_options ${tsan_options})
set(environment
  ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
  UBSAN_OPTIONS=print_stacktrace=1
  TSAN_OPTIONS=${tsan_options})

if(SANITIZE STREQUAL "thread")
  # Older runtimes of ThreadSanitizer refuse the address space layout of newer kernels.
  find_program(SETARCH setarch)
  if(SETARCH)
    execute_process(COMMAND ${SETARCH} ${CMAKE_HOST_SYSTEM_PROCESSOR} -R true
      RESULT_VARIABLE refused OUTPUT_QUIET ERROR_QUIET)
    if(refused EQUAL 0)
      set(launcher ${SETARCH} ${CMAKE_HOST_SYSTEM_PROCESSOR} -R)
      set_target_properties(ctran_tests PROPERTIES
        TEST_LAUNCHER "${launcher}" CROSSCOMPILING_EMULATOR "${launcher}")
    endif()
  endif()
endif()

# The kernels of plans, as a GPU's compiler gets them, for the host's.
add_executable(write_plans ${PROJECT_SOURCE_DIR}/tests/kernels/write_plans/main.cpp)
target_link_libraries(write_plans PRIVATE own_code ctran)
set(generated ${PROJECT_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${generated})
add_custom_command(OUTPUT ${generated}/plan_kernels.h
  COMMAND ${launcher} $<TARGET_FILE:write_plans> ${generated}/plan_kernels.h
  DEPENDS write_plans ctran
  VERBATIM)
target_sources(ctran_tests PRIVATE ${generated}/plan_kernels.h)
target_include_directories(ctran_tests PRIVATE ${generated})

# ctest asks the program which tests it has; a process for each of them would take most of the time.
set(program $<TARGET_FILE:ctran_tests>)
configure_file(${PROJECT_SOURCE_DIR}/cmake/suites.cmake.in ${PROJECT_BINARY_DIR}/suites.cmake.in @ONLY)
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/suites.cmake INPUT ${PROJECT_BINARY_DIR}/suites.cmake.in)
set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${PROJECT_BINARY_DIR}/suites.cmake)

# Hosts over RDMA, too, on the stand-in: every algorithm of the network, ranks that disagree, and ranks
# that are killed.
if(NOT SANITIZE)
  string(JOIN ":" over_rdma
    "HostsPath.*" "Hosts.SentData*" "Sizes/NamedAlgorithm.*" "HostsMismatch.*" "In/HostsKilled.*"
    "With/MatrixOfHosts.*/OneRankEach" "With/MatrixOfHosts.*/UnevenRanks")
  foreach(qps 1 2)
    set(test HostsOverRdmaOf${qps}QueuePairs)
    add_test(NAME ${test} COMMAND ctran_tests "--gtest_filter=${over_rdma}" --gtest_brief=1)
    set_tests_properties(${test} PROPERTIES TIMEOUT 600 LABELS unit ENVIRONMENT
      "CTRAN_VERBS_LIBRARY=$<TARGET_FILE:stand_in_verbs>;CTRAN_IB_QPS=${qps}")
  endforeach()
endif()

set(programs ctran_tests)
if(TARGET verbs_linked)
  list(APPEND programs verbs_linked)
endif()
include(MscclppTests)
list(APPEND programs mscclpp_tests)
if(TARGET torchcomms)
  include(TorchCommTests)
endif()

# ctran_soak: breaks ranks on purpose; ctest runs a few seconds of it.
if(NOT SANITIZE)
  file(GLOB fault_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/faults/*.cpp)
  add_executable(ctran_soak ${fault_sources})
  target_link_libraries(ctran_soak PRIVATE own_code cases ctran ${CMAKE_DL_LIBS})
  list(APPEND programs ctran_soak)
  add_test(NAME Soak COMMAND ctran_soak --faults 1000 --seconds 10)
  set_tests_properties(Soak PROPERTIES TIMEOUT 600)
  # Over RDMA, where each process's 300th work request fails, and each 300th after it.
  add_dependencies(ctran_soak stand_in_verbs)
  add_test(NAME SoakRdma COMMAND ctran_soak --faults 10 --seconds 20)
  set_tests_properties(SoakRdma PROPERTIES TIMEOUT 600 ENVIRONMENT
    "CTRAN_VERBS_LIBRARY=$<TARGET_FILE:stand_in_verbs>;STAND_IN_VERBS_FAULT=every:300:12")
endif()

# ctran_many_ranks: what creation costs each of very many ranks; ctest runs some hundreds.
if(NOT SANITIZE)
  file(GLOB scale_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/scale/*.cpp)
  add_executable(ctran_many_ranks ${scale_sources})
  target_link_libraries(ctran_many_ranks PRIVATE own_code ctran)
  list(APPEND programs ctran_many_ranks)
  add_test(NAME ManyRanks COMMAND ctran_many_ranks --ranks 512 --per-host 16)
  set_tests_properties(ManyRanks PROPERTIES TIMEOUT 600)
endif()

# ctran_hostile: a member that lies; where errors of memory show ctest runs half a minute of it.
if(NOT SANITIZE STREQUAL "thread")
  file(GLOB hostile_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/hostile/*.cpp)
  add_executable(ctran_hostile ${hostile_sources})
  target_link_libraries(ctran_hostile PRIVATE own_code cases ctran ${CMAKE_DL_LIBS})
  if(SANITIZE)
    set(seconds 30)
  else()
    set(seconds 3)
  endif()
  list(APPEND programs ctran_hostile)
  add_test(NAME HostileMember COMMAND ctran_hostile --seconds ${seconds})
  set_tests_properties(HostileMember PROPERTIES TIMEOUT 600 ENVIRONMENT "${environment}")
endif()

if(NOT SANITIZE)
  include(RdmaTests)
endif()

add_custom_target(tests DEPENDS ${programs})
# Without those whose tests have the label "unit".
list(REMOVE_ITEM programs ctran_tests mscclpp_tests)
add_custom_target(other_tests DEPENDS ${programs})
