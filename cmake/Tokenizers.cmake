# SPDX-License-Identifier: Apache-2.0
# The tokenizers crate behind a C ABI, as one static library (worker/tokenizer/ffi).
find_program(CARGO cargo HINTS $ENV{HOME}/.cargo/bin REQUIRED)
set(_crate ${CMAKE_CURRENT_LIST_DIR}/../worker/tokenizer/ffi)
set(_target ${PM_CACHE}/cargo)
file(GLOB_RECURSE _sources CONFIGURE_DEPENDS ${_crate}/src/*.rs ${_crate}/src/*.json)
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/libtextops.a
  COMMAND sh ${CMAKE_CURRENT_LIST_DIR}/tokenizers.sh ${CARGO} ${_crate} ${_target} ${CMAKE_BINARY_DIR}/libtextops.a
  DEPENDS ${_sources} ${_crate}/Cargo.toml ${_crate}/Cargo.lock ${CMAKE_CURRENT_LIST_DIR}/tokenizers.sh
  COMMENT "Building the tokenizers crate" VERBATIM)
add_custom_target(textops_cargo DEPENDS ${CMAKE_BINARY_DIR}/libtextops.a)
add_library(textops STATIC IMPORTED GLOBAL)
set_target_properties(textops PROPERTIES IMPORTED_LOCATION ${CMAKE_BINARY_DIR}/libtextops.a)
add_dependencies(textops textops_cargo)
find_package(Threads REQUIRED)
target_link_libraries(textops INTERFACE Threads::Threads ${CMAKE_DL_LIBS} m)
