# Tests of the TorchComm layer, tests/torchcomms: a program for each source. They link libtorchcomms:
# what this build makes with BUILD_PYTHON, else what is installed beside the torch of the Python that
# CMake finds. Without either there are none of them.

file(GLOB torchcomms_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/torchcomms/*.cpp)

if(NOT TARGET torchcomms)
  find_package(Python 3.10 QUIET COMPONENTS Interpreter)
  if(Python_FOUND)
    execute_process(
      COMMAND ${Python_EXECUTABLE} -c
        "import os, torchcomms._comms as c; print(os.path.join(os.path.dirname(c.__file__), 'lib'))"
      OUTPUT_VARIABLE installed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  if(NOT installed)
    message(STATUS "no tests of TorchComm: torchcomms is not installed, and BUILD_PYTHON is off")
    return()
  endif()
  message(STATUS "tests of TorchComm: with ${installed}")
  include(Torch)
  add_library(torchcomms SHARED IMPORTED)
  set_target_properties(torchcomms PROPERTIES IMPORTED_LOCATION ${installed}/libtorchcomms.so)
  target_link_libraries(torchcomms INTERFACE ${installed}/libctran.so)
endif()

foreach(source ${torchcomms_tests})
  get_filename_component(test ${source} NAME_WE)
  add_executable(${test} ${source})
  target_include_directories(${test} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${test} PRIVATE own_code torchcomms torch_libraries GTest::gtest
    GTest::gtest_main)
  target_compile_options(${test} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O0>
    $<$<CONFIG:RelWithDebInfo>:-g1>)
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
endforeach()
