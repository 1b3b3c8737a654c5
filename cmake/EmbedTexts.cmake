# SPDX-License-Identifier: Apache-2.0
# Run by the build: writes OUTPUT, a C++ table of the text files FILES (name, text): `TYPE table[]` in NAMESPACE, which
# FUNCTION returns as a span. HEADER declares both.
set(_text "// Made by EmbedTexts.cmake.\n#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n\nnamespace {\n\n")
string(APPEND _text "constexpr ${TYPE} table[] = {\n")
foreach(_file ${FILES})
  get_filename_component(_name ${_file} NAME_WE)
  file(READ ${_file} _content)
  string(APPEND _text "{\"${_name}\", R\"text(${_content})text\"},\n")
endforeach()
string(APPEND _text "};\n\n}  // namespace\n\nstd::span<const ${TYPE}> ${FUNCTION}() { return table; }\n\n")
string(APPEND _text "}  // namespace ${NAMESPACE}\n")
file(WRITE ${OUTPUT} "${_text}")
