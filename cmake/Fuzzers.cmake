# fuzz_<target> for each tests/fuzz/<target>.cpp; ctest runs each for FUZZ_SECONDS (default: 1).

# What is fuzzed says which of its branches are taken.
target_compile_options(ctran PRIVATE -fsanitize=fuzzer-no-link)
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*.cpp)
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)
foreach(source ${fuzz_sources})
  get_filename_component(target ${source} NAME_WE)
  add_executable(fuzz_${target} ${source})
  target_link_libraries(fuzz_${target} PRIVATE own_code ctran)
  add_dependencies(tests fuzz_${target})
  target_compile_options(fuzz_${target} PRIVATE -fsanitize=fuzzer-no-link)
  target_link_options(fuzz_${target} PRIVATE -fsanitize=fuzzer)
  add_test(NAME Fuzz.${target}
    COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/fuzz/run.py
      $<TARGET_FILE:fuzz_${target}> ${PROJECT_BINARY_DIR}/fuzz/${target})
endforeach()
