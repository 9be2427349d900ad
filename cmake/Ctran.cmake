# libctran_engine: the engine. Neither torch nor Python is needed, or allowed, here. Programs link
# libctran (ctran/api), which shows the interface of include/ctran alone.

add_library(ctran SHARED)
file(GLOB_RECURSE ctran_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ctran/*.cpp)

# A folder with a CMakeLists.txt lists its sources itself, for flags of their own or to choose
# among them.
file(GLOB_RECURSE lists_of_folders CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ctran/CMakeLists.txt)
foreach(list ${lists_of_folders})
  get_filename_component(folder ${list} DIRECTORY)
  list(FILTER ctran_sources EXCLUDE REGEX "^${folder}/")
  add_subdirectory(${folder})
endforeach()

# Device code is compiled when the program runs; the library carries its text.
file(GLOB_RECURSE device_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ctran/*.cuh)
if(device_sources)
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)
  set(embed_device_sources ${PROJECT_SOURCE_DIR}/tools/embed_device_sources.py)
  set(embedded ${PROJECT_BINARY_DIR}/device_sources.cpp)
  add_custom_command(OUTPUT ${embedded}
    COMMAND ${Python_EXECUTABLE} ${embed_device_sources} ${PROJECT_SOURCE_DIR} ${embedded}
    COMMAND ${CMAKE_COMMAND} -E touch ${embedded}
    DEPENDS ${embed_device_sources} ${device_sources}
    VERBATIM)
  list(APPEND ctran_sources ${embedded})
endif()

# What backend ncclx goes by (ctran/select/members.h) is what was measured last.
set(h200_results ${PROJECT_SOURCE_DIR}/benchmarks/results)
foreach(gpus 2 4)
  set(rows ${h200_results}/h200x${gpus}/gpu_collectives.jsonl)
  file(READ ${rows} MEASURED_ON_${gpus}_H200)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${rows})
endforeach()
configure_file(${PROJECT_SOURCE_DIR}/ctran/select/measured_on_h200.cpp.in
  ${PROJECT_BINARY_DIR}/measured_on_h200.cpp @ONLY)
list(APPEND ctran_sources ${PROJECT_BINARY_DIR}/measured_on_h200.cpp)

include(Algorithms)
list(APPEND ctran_sources ${ctran_algorithms})

target_sources(ctran PRIVATE ${ctran_sources})
# Half of the time to compile was the standard library's headers.
target_precompile_headers(ctran PRIVATE
  <algorithm> <array> <atomic> <chrono> <cstring> <deque> <functional> <map> <memory> <mutex>
  <optional> <span> <string> <string_view> <thread> <utility> <vector>)
# CMake leaves sources with flags of their own out of it.
compile_together(ctran 16)
target_link_libraries(ctran PRIVATE own_code ${CMAKE_DL_LIBS})
if(IBVERBX_BUILD_RDMA_CORE)
  find_library(IBVERBS_LIBRARY NAMES ibverbs libibverbs.so.1)
  if(NOT IBVERBS_LIBRARY)
    message(FATAL_ERROR "IBVERBX_BUILD_RDMA_CORE needs libibverbs of rdma-core, version 34 or later "
      "(Debian, Ubuntu: apt-get install libibverbs-dev).")
  endif()
  # Whoever uses ctran/verbs calls the library itself.
  target_link_libraries(ctran PUBLIC ${IBVERBS_LIBRARY})
  target_compile_definitions(ctran PUBLIC IBVERBX_BUILD_RDMA_CORE)
endif()
# Calls within the library are direct: a twentieth of a small collective is calls of functions.
target_link_options(ctran PRIVATE ${no_undefined_symbols} -Wl,-Bsymbolic-functions)
target_include_directories(ctran PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
target_compile_definitions(ctran PRIVATE CTRAN_VERSION="${PROJECT_VERSION}")
set_target_properties(ctran PROPERTIES
  OUTPUT_NAME ctran_engine
  LINKER_LANGUAGE CXX
  INSTALL_RPATH $ORIGIN)

install(TARGETS ctran LIBRARY DESTINATION ${INSTALL_LIB})
