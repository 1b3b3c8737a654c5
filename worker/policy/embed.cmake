# SPDX-License-Identifier: Apache-2.0
# Run by the build: writes OUTPUT, a C++ table of the policy files FILES (name, text).
set(_text "// Made by embed.cmake from policies/*.yaml.\n#include \"worker/policy/document.h\"\n\n")
string(APPEND _text "namespace pm::policy {\n\nnamespace {\n\nconstexpr Builtin table[] = {\n")
foreach(_file ${FILES})
  get_filename_component(_name ${_file} NAME_WE)
  file(READ ${_file} _policy)
  string(APPEND _text "{\"${_name}\", R\"policy(${_policy})policy\"},\n")
endforeach()
string(APPEND _text "};\n\n}  // namespace\n\nstd::span<const Builtin> builtins() { return table; }\n\n")
string(APPEND _text "}  // namespace pm::policy\n")
file(WRITE ${OUTPUT} "${_text}")
