// SPDX-License-Identifier: Apache-2.0
// Names of languages: requests and replies of speech have codes or English names.
#pragma once
#include <optional>
#include <string>

namespace pm::server {

/// Returns the code of a language, "en", by its code or its English name in any case; nothing for others.
std::optional<std::string> language_code(const std::string& name);
/// Returns the English name of a code in lower case; the code itself where the name is not known.
std::string language_name(const std::string& code);

}  // namespace pm::server
