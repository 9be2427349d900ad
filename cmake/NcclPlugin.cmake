# libtorchcomms_nccl: plug-ins that NCCL loads (docs/backends/nccl.md). Without torch, and without
# headers of NCCL.

file(GLOB plugin_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/torchcomms/csrc/nccl_plugin/*.cpp)
add_library(nccl_plugin SHARED ${plugin_sources})
target_link_libraries(nccl_plugin PRIVATE own_code ctran ${CMAKE_DL_LIBS})
target_link_options(nccl_plugin PRIVATE ${no_undefined_symbols})
set_target_properties(nccl_plugin PROPERTIES OUTPUT_NAME torchcomms_nccl INSTALL_RPATH $ORIGIN)
install(TARGETS nccl_plugin LIBRARY DESTINATION ${INSTALL_LIB})
