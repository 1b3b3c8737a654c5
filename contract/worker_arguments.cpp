// SPDX-License-Identifier: Apache-2.0
#include "contract/worker_arguments.h"

#include <charconv>

namespace pm {

std::string to_text(const Address& address) {
  const bool ipv6 = address.host.find(':') != std::string::npos;
  return (ipv6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

std::string to_text(const NamedAdapter& adapter) { return adapter.name + "=" + adapter.folder; }

std::optional<Address> parse_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  Address address{.host = text.substr(0, colon)};
  if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']')
    address.host = address.host.substr(1, address.host.size() - 2);
  const char *begin = text.data() + colon + 1, *end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(begin, end, address.port);
  const bool digits = begin != end && *begin != '-' && end - begin <= 5 && error == std::errc() && rest == end;
  if (!digits || address.host.empty() || address.port < 1 || address.port > 65535) return std::nullopt;
  return address;
}

}  // namespace pm
