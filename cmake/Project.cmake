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

function(_pm_configure name)
  cmake_parse_arguments(A "TORCH" "" "SOURCES;DEPENDS;PRECOMPILE" ${ARGN})
  target_sources(${name} PRIVATE ${A_SOURCES})
  if(A_TORCH)
    target_link_libraries(${name} PUBLIC pm_torch)
    target_precompile_headers(${name} REUSE_FROM pm_torch)
  endif()
  target_link_libraries(${name} PUBLIC pm_options ${A_DEPENDS})
endfunction()

function(pm_library name)
  cmake_parse_arguments(L "TORCH" "" "" ${ARGN})
  add_library(${name} STATIC)
  _pm_configure(${name} ${ARGN})
  if(NOT L_TORCH)
    target_link_libraries(${name} PUBLIC nlohmann_json::nlohmann_json)
    target_precompile_headers(${name} REUSE_FROM pm_json)
  endif()
endfunction()

function(pm_test name)
  cmake_parse_arguments(B "TORCH" "" "PRECOMPILE" ${ARGN})
  add_executable(${name})
  _pm_configure(${name} ${ARGN})
  if(NOT B_TORCH)   # these share a precompiled header, which keeps the optimization it was made with
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
    target_precompile_headers(${name} PRIVATE ${B_PRECOMPILE})
  endif()
  target_link_libraries(${name} PRIVATE GTest::gtest_main GTest::gmock)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
endfunction()
