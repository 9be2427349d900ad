# libmscclpp: the host's side of include/mscclpp, on libctran.

set(MSCCLPP_INCLUDE ${INSTALL_INCLUDE})
set(MSCCLPP_LIB ${INSTALL_LIB})
if(BUILD_PYTHON)
  set(MSCCLPP_INCLUDE mscclpp/include)
  set(MSCCLPP_LIB mscclpp/lib)
endif()

file(GLOB mscclpp_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/mscclpp/csrc/*.cpp)
add_library(mscclpp SHARED ${mscclpp_sources})
target_include_directories(mscclpp PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${MSCCLPP_INCLUDE}>)
target_compile_features(mscclpp INTERFACE cxx_std_17)
target_compile_definitions(mscclpp PRIVATE MSCCLPP_VERSION="${PROJECT_VERSION}")
target_link_libraries(mscclpp PRIVATE own_code ctran_api)
target_link_options(mscclpp PRIVATE ${no_undefined_symbols})
file(RELATIVE_PATH to_ctran /x/${MSCCLPP_LIB} /x/${INSTALL_LIB})
set_target_properties(mscclpp PROPERTIES
  CXX_VISIBILITY_PRESET hidden
  VISIBILITY_INLINES_HIDDEN ON
  INSTALL_RPATH "$ORIGIN/${to_ctran}")

# find_package(mscclpp) gives programs the target mscclpp::mscclpp.
install(TARGETS mscclpp LIBRARY DESTINATION ${MSCCLPP_LIB})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/mscclpp DESTINATION ${MSCCLPP_INCLUDE})
include(CMakePackageConfigHelpers)
set(config_folder ${MSCCLPP_LIB}/cmake/mscclpp)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/mscclpp-config.cmake.in
  ${PROJECT_BINARY_DIR}/mscclpp-config.cmake
  INSTALL_DESTINATION ${config_folder} PATH_VARS MSCCLPP_INCLUDE MSCCLPP_LIB)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/mscclpp-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/mscclpp-config.cmake
  ${PROJECT_BINARY_DIR}/mscclpp-config-version.cmake DESTINATION ${config_folder})
