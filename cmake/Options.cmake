# What can be chosen, and the flags that everything of ours is compiled with.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Debug, Release, RelWithDebInfo, MinSizeRel" FORCE)
endif()

set(under_pip OFF)
if(SKBUILD)
  set(under_pip ON)
endif()

option(BUILD_TESTS "the C++ unit tests, ctran_tests (needs GoogleTest)" OFF)
option(BUILD_PYTHON "libtorchcomms and the extension module (needs Python and torch)" ${under_pip})
option(BUILD_BENCHMARKS "ctran-bench" ${under_pip})
# On where every change is tested. A compiler that came later may suspect code that is right, which
# must not keep anybody from building.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(tested_compiler ON)
else()
  set(tested_compiler OFF)
endif()
option(WARNINGS_AS_ERRORS "a warning in our own code stops the build" ${tested_compiler})
set(SANITIZE "" CACHE STRING "address (with undefined behaviour), thread, or empty")
set_property(CACHE SANITIZE PROPERTY STRINGS "" address thread)

option(IBVERBX_BUILD_RDMA_CORE "link libibverbs of rdma-core, instead of loading it when it is needed"
  OFF)

# USE_<BACKEND>: an environment variable of that name is the default of a new build directory.
# A backend that is off is left out of the library.
set(TORCHCOMMS_SWITCHES "")
function(torchcomms_switch name default description)
  if(DEFINED ENV{${name}} AND NOT "$ENV{${name}}" STREQUAL "")
    set(default "$ENV{${name}}")
  endif()
  set(${name} "${default}" CACHE STRING "${description} (ON or OFF)")
  string(TOUPPER "${${name}}" value)
  if(value MATCHES "^(ON|1|TRUE|YES)$")
    set(value 1)
  elseif(value MATCHES "^(OFF|0|FALSE|NO)$")
    set(value 0)
  else()
    message(FATAL_ERROR "${name}=${${name}}: say ON or OFF (or 1 or 0).")
  endif()
  set(TORCHCOMMS_${name} ${value} PARENT_SCOPE)
  set(TORCHCOMMS_SWITCHES ${TORCHCOMMS_SWITCHES} ${name} PARENT_SCOPE)
endfunction()

torchcomms_switch(USE_NCCL ON "backend nccl")
torchcomms_switch(USE_NCCLX ON "backend ncclx")
torchcomms_switch(USE_GLOO ON "backend gloo")
torchcomms_switch(USE_RCCL OFF "backend rccl")
torchcomms_switch(USE_RCCLX OFF "backend rcclx")
torchcomms_switch(USE_XCCL OFF "backend xccl")
torchcomms_switch(USE_TRANSPORT ON "the transport API")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# A change inside libctran does not make others link again.
set(CMAKE_LINK_DEPENDS_NO_SHARED ON)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# Linked by every target of ours, and by nobody else's.
add_library(own_code INTERFACE)
target_include_directories(own_code INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_compile_options(own_code INTERFACE
  -Wall -Wextra -Wpedantic -Wextra-semi -Wnon-virtual-dtor -Woverloaded-virtual -Wvla -Wformat=2
  # GCC suspects arrays that loops fill, and with precompiled headers its own strings; it does so
  # differently in each version and sanitizer.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized -Wno-array-bounds -Wno-restrict
  -Wno-stringop-overflow -Wno-stringop-overread>
  # Not with sanitizers nor with -O3, whose code makes compilers suspect more; the plain build has the
  # same code.
  $<$<AND:$<BOOL:${WARNINGS_AS_ERRORS}>,$<NOT:$<BOOL:${SANITIZE}>>,$<NOT:$<CONFIG:Release>>>:-Werror>)
target_link_libraries(own_code INTERFACE Threads::Threads)

# A target's sources, so many at a time: compilers spend most of their time on the headers that
# these share. Names in their namespaces without a name must differ; `make lint` reads all as one.
# -DCMAKE_UNITY_BUILD=OFF: one by one.
function(compile_together target sources)
  if(NOT DEFINED CMAKE_UNITY_BUILD)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${sources})
    # That is said of names without linkage in whatever is included.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# The same by folders, where names differ within each; but for those of `one_by_one`.
function(compile_folders_together target one_by_one)
  if(NOT DEFINED CMAKE_UNITY_BUILD)
    get_target_property(sources ${target} SOURCES)
    foreach(source ${sources})
      get_filename_component(folder ${source} DIRECTORY)
      get_filename_component(folder ${folder} NAME)
      if(NOT folder IN_LIST one_by_one)
        set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${folder})
      endif()
    endforeach()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

if(SANITIZE STREQUAL "address")
  # To look at an object's type takes a pipe, of which the tests count how many there are. Accesses by
  # null and beyond objects are ASan's: to check them twice takes compilers a sixth longer.
  set(sanitizer_flags -fsanitize=address,undefined -fno-sanitize=vptr,null,object-size
    -fno-sanitize-recover=all)
  # Clang brings libFuzzer: tests/fuzz.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    list(APPEND sanitizer_flags -fno-sanitize=function)
    set(BUILD_FUZZERS ${BUILD_TESTS})
  endif()
elseif(SANITIZE STREQUAL "thread")
  set(sanitizer_flags -fsanitize=thread)
  # TSan does not model fences. Ours order the counters with who sleeps, never the data.
  set(sanitizer_warnings $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
elseif(NOT SANITIZE STREQUAL "")
  message(FATAL_ERROR "SANITIZE=${SANITIZE}: say address, thread, or nothing.")
endif()
# Line tables are enough for stacks, and take a quarter less to compile than -g; that of torch's
# headers is 100 times larger than the code. Debug has all.
add_compile_options($<$<CONFIG:RelWithDebInfo>:-g1>)
if(SANITIZE)
  string(TOUPPER ${SANITIZE} sanitizer)
  add_compile_definitions($<$<CXX_COMPILER_ID:Clang>:__SANITIZE_${sanitizer}__>)  # as GCC does
  add_compile_options($<$<CONFIG:RelWithDebInfo>:-O1>)
  add_compile_options(${sanitizer_flags} ${sanitizer_warnings} -fno-omit-frame-pointer)
  add_link_options(${sanitizer_flags})
else()
  # For shared libraries: a symbol that nobody defines is found when we link, not when a user
  # imports. (The sanitizers' own symbols come with the executable, so those builds cannot have it.)
  set(no_undefined_symbols -Wl,--no-undefined)
  # Where a compiler brings its C++ library as an archive alone, each of our libraries has a copy.
  # Such a copy must not mix with the shared one that torch has loaded: that crashes in streams.
  add_link_options(-Wl,--exclude-libs,ALL)
endif()

# In a wheel everything lies in the package; elsewhere where the system puts such things.
set(CMAKE_INSTALL_MESSAGE LAZY)
include(GNUInstallDirs)
if(BUILD_PYTHON)
  set(INSTALL_BIN torchcomms/bin)
  set(INSTALL_LIB torchcomms/lib)
  set(INSTALL_INCLUDE torchcomms/include)
else()
  set(INSTALL_BIN ${CMAKE_INSTALL_BINDIR})
  set(INSTALL_LIB ${CMAKE_INSTALL_LIBDIR})
  set(INSTALL_INCLUDE ${CMAKE_INSTALL_INCLUDEDIR})
endif()
file(RELATIVE_PATH bin_to_lib /x/${INSTALL_BIN} /x/${INSTALL_LIB})
set(INSTALL_RPATH_OF_BIN $ORIGIN/${bin_to_lib})
