# mscclpp_tests: what include/mscclpp promises to native programs, on the host.

file(GLOB mscclpp_test_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/mscclpp/native/*.cpp)
add_executable(mscclpp_tests
  ${mscclpp_test_sources} ${PROJECT_SOURCE_DIR}/tests/unit/support/ranks.cpp
  ${PROJECT_SOURCE_DIR}/tests/unit/support/stand_ins.cpp)
add_dependencies(mscclpp_tests stand_in_cuda stand_in_nvrtc stand_in_verbs)
target_compile_definitions(mscclpp_tests PRIVATE STAND_IN_VERBS="$<TARGET_FILE:stand_in_verbs>")
target_link_libraries(mscclpp_tests PRIVATE
  own_code cases mscclpp ctran ctran_api GTest::gtest GTest::gtest_main)
compile_folders_together(mscclpp_tests support)
add_test(NAME mscclpp_tests COMMAND ${launcher} $<TARGET_FILE:mscclpp_tests> --gtest_brief=1)
set_tests_properties(mscclpp_tests PROPERTIES LABELS unit ENVIRONMENT "${environment}")
