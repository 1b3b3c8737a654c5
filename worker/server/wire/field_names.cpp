// SPDX-License-Identifier: Apache-2.0
#include "worker/server/wire/field_names.h"

#include <cctype>
#include <string_view>

namespace pm::server {
namespace {

bool continues_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string replaced(std::string_view text, std::span<const FieldName> names) {
  std::string made;
  for (size_t at = 0; at < text.size();) {
    const FieldName* found = nullptr;
    if (at == 0 || !continues_name(text[at - 1]))
      for (const FieldName& name : names) {
        const std::string_view chat = name.chat;
        const size_t end = at + chat.size();
        if (!text.substr(at).starts_with(chat) || (end < text.size() && continues_name(text[end]))) continue;
        found = &name;
        break;
      }
    if (found) {
      made += found->own;
      at += std::string_view(found->chat).size();
    } else {
      made += text[at++];
    }
  }
  return made;
}

}  // namespace

ApiError with_own_names(ApiError error, std::span<const FieldName> names) {
  ApiError made(error.status, error.code, replaced(error.what(), names), replaced(error.param, names));
  made.retry_after = error.retry_after;
  return made;
}

}  // namespace pm::server
