# The registry of algorithms: for each ctran/collective/COLLECTIVE/PLACE/NAME.cpp, whose path says
# what its function is called (all_reduce/net/ring.cpp: algorithms::allReduceNetRing), one line of
# the generated list. ctran_algorithms is the path of that file.
file(GLOB algorithm_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/ctran/collective
  ${PROJECT_SOURCE_DIR}/ctran/collective/*/shm/*.cpp
  ${PROJECT_SOURCE_DIR}/ctran/collective/*/net/*.cpp
  ${PROJECT_SOURCE_DIR}/ctran/collective/*/hosts/*.cpp
  ${PROJECT_SOURCE_DIR}/ctran/collective/*/gpu/*.cpp
  ${PROJECT_SOURCE_DIR}/ctran/collective/*/gpu_hosts/*.cpp)
list(SORT algorithm_sources)
set(declarations "")
set(calls "")
foreach(source ${algorithm_sources})
  string(REGEX REPLACE "\\.cpp$" "" path ${source})
  string(REGEX REPLACE "[/_]" ";" words ${path})
  set(function "")
  foreach(word ${words})
    if(function)
      string(SUBSTRING ${word} 0 1 initial)
      string(SUBSTRING ${word} 1 -1 rest)
      string(TOUPPER ${initial} initial)
      string(APPEND function ${initial}${rest})
    else()
      set(function ${word})
    endif()
  endforeach()
  string(APPEND declarations "Algorithm ${function}();\n")
  string(APPEND calls "      algorithms::${function}(),\n")
endforeach()
set(ctran_algorithms ${PROJECT_BINARY_DIR}/generated/algorithms.cpp)
configure_file(${CMAKE_CURRENT_LIST_DIR}/algorithms.cpp.in ${ctran_algorithms} @ONLY)
