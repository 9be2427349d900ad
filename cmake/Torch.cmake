# torch as its wheels carry it. (find_package(Torch) of those wheels asks for a CUDA toolkit, of
# which we need nothing.) Defines TORCH_VERSION and the target torch_libraries.

set(torch_facts_script ${CMAKE_CURRENT_LIST_DIR}/torch_facts.py)
execute_process(
  COMMAND ${Python_EXECUTABLE} ${torch_facts_script}
  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE errors
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT result EQUAL 0)
  message(FATAL_ERROR
    "torchcomms is built against the torch of the environment it is installed into, and\n"
    "  ${Python_EXECUTABLE}\n"
    "cannot import torch: ${output} ${errors}\n"
    "An isolated build does not see that environment. Install torch there first, then:\n"
    "  pip install cmake ninja scikit-build-core\n"
    "  pip install --no-build-isolation .\n")
endif()
string(REPLACE ";" "\\;" output "${output}")
string(REPLACE "\n" ";" output "${output}")
foreach(line IN LISTS output)
  if(line MATCHES "^(TORCH_[A-Z0-9_]+)=(.*)$")
    set(${CMAKE_MATCH_1} "${CMAKE_MATCH_2}")
  endif()
endforeach()
if(NOT TORCH_LIB_DIR)
  message(FATAL_ERROR "${torch_facts_script} said nothing of torch: ${output} ${errors}")
endif()
string(REGEX MATCH "^[0-9]+\\.[0-9]+" torch_minor "${TORCH_VERSION}")
if(torch_minor VERSION_LESS 2.8)
  message(FATAL_ERROR "torchcomms needs torch 2.8 or newer; ${Python_EXECUTABLE} has ${TORCH_VERSION}.")
endif()
message(STATUS "torch ${TORCH_VERSION}: ${TORCH_LIB_DIR}")

add_library(torch_libraries INTERFACE)
target_include_directories(torch_libraries SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
target_compile_definitions(torch_libraries INTERFACE
  _GLIBCXX_USE_CXX11_ABI=${TORCH_CXX11_ABI} ${TORCH_PYBIND11})
target_link_libraries(torch_libraries INTERFACE
  ${TORCH_LIB_DIR}/libtorch.so ${TORCH_LIB_DIR}/libtorch_cpu.so ${TORCH_LIB_DIR}/libc10.so)
