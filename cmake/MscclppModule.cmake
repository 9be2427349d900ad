# mscclpp._runtime: what mscclpp needs of the engine, for Python. Without torch.

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
file(GLOB runtime_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/mscclpp/csrc/bindings/*.cpp)
list(APPEND runtime_sources ${PROJECT_SOURCE_DIR}/mscclpp/csrc/environment.cpp)
Python_add_library(_runtime MODULE WITH_SOABI ${runtime_sources})
target_link_libraries(_runtime PRIVATE own_code ctran_api)
target_include_directories(_runtime PRIVATE ${PROJECT_SOURCE_DIR})
set_target_properties(_runtime PROPERTIES
  CXX_VISIBILITY_PRESET hidden
  INSTALL_RPATH "$ORIGIN/../torchcomms/lib")
install(TARGETS _runtime LIBRARY DESTINATION mscclpp)
