# ctran-bench: times the engine without Python.

file(GLOB bench_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/benchmarks/cpp/*.cpp)
if(NOT bench_sources)
  message(STATUS "benchmarks/cpp has no sources: no ctran-bench")
  return()
endif()

add_executable(ctran-bench ${bench_sources})
target_link_libraries(ctran-bench PRIVATE own_code ctran)
set_target_properties(ctran-bench PROPERTIES INSTALL_RPATH ${INSTALL_RPATH_OF_BIN})
install(TARGETS ctran-bench RUNTIME DESTINATION ${INSTALL_BIN})
