# SPDX-License-Identifier: Apache-2.0
# pm_library(NAME [TORCH] SOURCES ... [DEPENDS ...]): one static library per folder. TORCH shares the precompiled ATen.
# pm_test(NAME [TORCH] SOURCES ... DEPENDS ... [PRECOMPILE <header> ...]): one GoogleTest program per folder, run by
# ctest.
add_library(pm_options INTERFACE)
target_compile_features(pm_options INTERFACE cxx_std_20)
# GCC 12 warns falsely about its own std::string code once it is inlined (GCC bug 105651): restrict, overflow and
# bounds are off. -fPIC holds for programs too, because they share the precompiled headers.
target_compile_options(pm_options INTERFACE
  -Wall
  -Wextra
  -Werror
  -Wno-missing-field-initializers
  -Wno-restrict
  -Wno-array-bounds
  -Wno-stringop-overflow
  -fPIC)
target_include_directories(pm_options INTERFACE ${CMAKE_SOURCE_DIR})
find_package(Threads REQUIRED)
target_link_libraries(pm_options INTERFACE Threads::Threads)

file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/pch/torch.cpp CONTENT "// carries the precompiled ATen header\n")
add_library(pm_torch STATIC ${CMAKE_BINARY_DIR}/pch/torch.cpp)
target_link_libraries(pm_torch PUBLIC pm_options LibTorch::cpu)
target_precompile_headers(pm_torch PRIVATE <ATen/ATen.h> <nlohmann/json.hpp>)
find_package(nlohmann_json REQUIRED)
target_link_libraries(pm_torch PUBLIC nlohmann_json::nlohmann_json)

# Tests with torch share another one, of less optimization.
if(BUILD_TESTING)
  find_package(GTest REQUIRED)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/pch/torch_test.cpp CONTENT "// carries the precompiled headers of tests\n")
  add_library(pm_torch_test STATIC ${CMAKE_BINARY_DIR}/pch/torch_test.cpp)
  target_compile_options(pm_torch_test PRIVATE $<$<CONFIG:Release>:-O1>)
  target_link_libraries(pm_torch_test PRIVATE pm_torch GTest::gtest_main GTest::gmock)
  target_precompile_headers(pm_torch_test PRIVATE <ATen/ATen.h> <gmock/gmock.h> <gtest/gtest.h> <nlohmann/json.hpp>)
endif()

# Libraries without torch share a precompiled JSON header and the standard headers that most of them include.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/pch/json.cpp CONTENT "// carries the precompiled JSON header\n")
add_library(pm_json STATIC ${CMAKE_BINARY_DIR}/pch/json.cpp)
target_link_libraries(pm_json PUBLIC pm_options nlohmann_json::nlohmann_json)
target_precompile_headers(pm_json PRIVATE
  <nlohmann/json.hpp>
  <algorithm>
  <chrono>
  <functional>
  <map>
  <memory>
  <mutex>
  <optional>
  <set>
  <string>
  <thread>
  <variant>
  <vector>)

# Most time of a compiler goes into the same templates of torch and JSON again. So up to eight sources are compiled as
# one where that changes nothing in them. An editor's language server wants commands for each file: -DPM_UNITY=OFF.
# CMake's own unity builds name the sources by absolute paths, by which ccache finds nothing in another clone.
option(PM_UNITY "compile several sources of a target as one" ON)
# A target that shares sources with one of pm_library or pm_test calls pm_units(NAME SOURCE...) too.
function(pm_units name)
  foreach(source ${ARGN})
    get_filename_component(path ${source} ABSOLUTE)
    string(FIND ${path} ${CMAKE_BINARY_DIR}/ is_made)
    if(is_made EQUAL -1)
      set_property(GLOBAL APPEND PROPERTY PM_UNITY_SOURCES "${name}|${path}")
    endif()
  endforeach()
endfunction()
function(_pm_write_units)
  get_property(sources GLOBAL PROPERTY PM_UNITY_SOURCES)
  set(lines)
  foreach(source ${sources})
    string(REPLACE "|" ";" source "${source}")
    list(POP_FRONT source name path)
    set(is_alone FALSE)
    foreach(property SKIP_UNITY_BUILD_INCLUSION COMPILE_OPTIONS COMPILE_DEFINITIONS)
      get_source_file_property(value ${path} TARGET_DIRECTORY ${name} ${property})
      if(value)
        set(is_alone TRUE)
      endif()
    endforeach()
    if(NOT is_alone)
      string(APPEND lines "${name}|${path}\n")
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    endif()
  endforeach()
  file(WRITE ${CMAKE_BINARY_DIR}/units/sources.txt "${lines}")
  execute_process(COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/units.py 8 ${CMAKE_BINARY_DIR}/units
    OUTPUT_VARIABLE lines OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" lines "${lines}")
  foreach(line ${lines})
    string(REPLACE "|" ";" line "${line}")
    list(POP_FRONT line name unit)
    target_sources(${name} PRIVATE ${unit})
    set_source_files_properties(${line} TARGET_DIRECTORY ${name} PROPERTIES HEADER_FILE_ONLY ON)
  endforeach()
endfunction()
if(PM_UNITY)
  cmake_language(DEFER DIRECTORY ${CMAKE_SOURCE_DIR} CALL _pm_write_units)
endif()

function(_pm_configure name)
  cmake_parse_arguments(A "TORCH" "" "SOURCES;DEPENDS;PRECOMPILE" ${ARGN})
  target_sources(${name} PRIVATE ${A_SOURCES})
  pm_units(${name} ${A_SOURCES})
  if(A_TORCH)
    target_link_libraries(${name} PUBLIC pm_torch)
  endif()
  target_link_libraries(${name} PUBLIC pm_options ${A_DEPENDS})
endfunction()

function(pm_library name)
  cmake_parse_arguments(L "TORCH" "" "" ${ARGN})
  add_library(${name} STATIC)
  _pm_configure(${name} ${ARGN})
  if(L_TORCH)
    target_precompile_headers(${name} REUSE_FROM pm_torch)
  else()
    target_link_libraries(${name} PUBLIC nlohmann_json::nlohmann_json)
    target_precompile_headers(${name} REUSE_FROM pm_json)
  endif()
endfunction()

function(pm_test name)
  cmake_parse_arguments(B "TORCH" "" "PRECOMPILE" ${ARGN})
  add_executable(${name})
  _pm_configure(${name} ${ARGN})
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(B_TORCH)
    target_precompile_headers(${name} REUSE_FROM pm_torch_test)
  else()
    target_precompile_headers(${name} PRIVATE ${B_PRECOMPILE})
  endif()
  target_link_libraries(${name} PRIVATE GTest::gtest_main GTest::gmock)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
endfunction()
