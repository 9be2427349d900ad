# Tests of the TorchComm layer, tests/torchcomms: a program for each source, where BUILD_PYTHON makes
# libtorchcomms.

file(GLOB torchcomms_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/torchcomms/*.cpp)
if(NOT TORCHCOMMS_USE_TRANSPORT)
  list(FILTER torchcomms_tests EXCLUDE REGEX "/RdmaTransport")
endif()

foreach(source ${torchcomms_tests})
  get_filename_component(test ${source} NAME_WE)
  add_executable(${test} ${source})
  target_include_directories(${test} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${test} PRIVATE own_code torchcomms torch_libraries GTest::gtest
    GTest::gtest_main)
  target_compile_options(${test} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O0>)
  if(test MATCHES "^RdmaTransport")
    add_dependencies(${test} stand_in_verbs)
    set_property(SOURCE ${source}
      APPEND PROPERTY COMPILE_DEFINITIONS STAND_IN_VERBS="$<TARGET_FILE:stand_in_verbs>")
    target_include_directories(${test} PRIVATE ${PROJECT_SOURCE_DIR}/tests/torchcomms/folly_stub)
  endif()
  if(test MATCHES "^DeviceWindow")
    target_link_libraries(${test} PRIVATE mscclpp)  # runs kernels on the host
  endif()
  # Headers of torch are most of what there is to compile: once for all of the programs.
  if(with_headers)
    target_precompile_headers(${test} REUSE_FROM ${with_headers})
  else()
    target_precompile_headers(${test} PRIVATE
      <comms/torchcomms/TorchComm.hpp> <gtest/gtest.h>)
    set(with_headers ${test})
  endif()
  # One of ctest's for each program: to load torch takes longer than all tests in it.
  add_test(NAME ${test} COMMAND ${test})
  list(APPEND programs ${test})
endforeach()
