# libtorchcomms: the torch face, without Python. torchcomms._comms: its Python module.

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
include(Torch)

# Sources of csrc/**, the module's apart; what a switch turns off is left out.
file(GLOB_RECURSE glue_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/torchcomms/csrc/*.cpp)
file(GLOB_RECURSE module_sources CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/torchcomms/csrc/bindings/*.cpp)
list(FILTER glue_sources EXCLUDE REGEX "/torchcomms/csrc/(bindings|nccl_plugin)/")

set(folders_of_USE_NCCL "backends/nccl_alone")
set(folders_of_USE_NCCLX "backends/ncclx")
set(folders_of_USE_GLOO "backends/gloo")
set(folders_of_USE_RCCL "backends/rccl")
set(folders_of_USE_RCCLX "backends/rcclx")
set(folders_of_USE_XCCL "backends/xccl")
set(folders_of_USE_TRANSPORT "transport")

add_library(glue_options INTERFACE)
target_link_libraries(glue_options INTERFACE own_code torch_libraries)
target_include_directories(glue_options INTERFACE ${PROJECT_SOURCE_DIR}/include)
target_compile_definitions(glue_options INTERFACE
  TORCHCOMMS_VERSION="${PROJECT_VERSION}" TORCHCOMMS_TORCH_VERSION="${TORCH_VERSION}")
# One source serves all libraries of NCCL's interface; it registers those that are wanted.
set(vendors ${PROJECT_SOURCE_DIR}/torchcomms/csrc/backends/nccl/vendors.cpp)
foreach(switch ${TORCHCOMMS_SWITCHES})
  set_property(SOURCE ${vendors} APPEND PROPERTY COMPILE_DEFINITIONS
    TORCHCOMMS_${switch}=${TORCHCOMMS_${switch}})
  if(NOT TORCHCOMMS_${switch})
    list(FILTER glue_sources EXCLUDE REGEX "/torchcomms/csrc/${folders_of_${switch}}/")
    list(FILTER module_sources EXCLUDE REGEX "/csrc/bindings/${folders_of_${switch}}/")
    message(STATUS "${switch} is off: csrc/${folders_of_${switch}} is left out")
  endif()
endforeach()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/comms DESTINATION ${INSTALL_INCLUDE} OPTIONAL)
set_property(SOURCE ${PROJECT_SOURCE_DIR}/torchcomms/csrc/bindings/module.cpp
  APPEND PROPERTY COMPILE_DEFINITIONS TORCHCOMMS_USE_TRANSPORT=${TORCHCOMMS_USE_TRANSPORT})

if(NOT glue_sources)
  message(STATUS "torchcomms/csrc has no sources: no libtorchcomms")
  return()
endif()

add_library(torchcomms SHARED ${glue_sources})
target_link_libraries(torchcomms PRIVATE glue_options nccl_plugin PUBLIC ctran)
target_link_options(torchcomms PRIVATE ${no_undefined_symbols})
target_precompile_headers(torchcomms PRIVATE
  <ATen/ATen.h>
  <torch/csrc/distributed/c10d/Backend.hpp>
  <torch/csrc/distributed/c10d/Store.hpp>
  <torch/csrc/distributed/c10d/Work.hpp>)
compile_together(torchcomms 8)
# torch lies beside us in site-packages, so programs that link libtorchcomms find it too.
set_target_properties(torchcomms PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/../../torch/lib")
install(TARGETS torchcomms LIBRARY DESTINATION ${INSTALL_LIB})

if(NOT module_sources)
  message(STATUS "torchcomms/csrc/bindings has no sources: no torchcomms._comms")
  return()
endif()
Python_add_library(_comms MODULE WITH_SOABI ${module_sources})
target_link_libraries(_comms PRIVATE glue_options torchcomms ${TORCH_LIB_DIR}/libtorch_python.so)
target_precompile_headers(_comms PRIVATE <torch/csrc/utils/pybind.h>)
compile_together(_comms 6)
set_target_properties(_comms PROPERTIES
  CXX_VISIBILITY_PRESET hidden
  INSTALL_RPATH "$ORIGIN/lib;$ORIGIN/../torch/lib")
install(TARGETS _comms LIBRARY DESTINATION torchcomms)

# The package looks at this before it loads the module, which with another torch could do anything.
set(build_info ${PROJECT_SOURCE_DIR}/torchcomms/_build_info.py.in)
if(EXISTS ${build_info})
  configure_file(${build_info} ${PROJECT_BINARY_DIR}/_build_info.py @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/_build_info.py DESTINATION torchcomms)
endif()
