// RFC 4648 base64, as kubeconfig files hold certificates.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace pm::k8s {

/// Whitespace is skipped; nothing when the text is not base64.
std::optional<std::string> decode_base64(std::string_view);

}  // namespace pm::k8s
