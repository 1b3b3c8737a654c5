// SPDX-License-Identifier: Apache-2.0
#include "worker/launch/node_link.h"

#include <cstring>

namespace pm::launch {
namespace {

const std::string greeting = "PMGROUP1";
constexpr size_t max_unsent = 4 << 20;

}  // namespace

NodeLink::NodeLink(comm::Socket socket, bool caller) : socket_(std::move(socket)), greeted_(caller) {
  if (caller) out_ = greeting;
}

bool NodeLink::end(const std::string& why) {
  if (why_.empty()) why_ = why;
  socket_.close();
  return false;
}

void NodeLink::send(const nlohmann::json& message) {
  const std::string text = message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const auto length = static_cast<uint32_t>(text.size());
  out_.append(reinterpret_cast<const char*>(&length), sizeof length).append(text);
}

bool NodeLink::pump() {
  if (!socket_.is_open()) return false;
  if (out_.size() > max_unsent) return end("it does not read what is sent");
  return read() && write();
}

bool NodeLink::read() {
  std::byte piece[16384];
  for (;;) {
    const auto count = comm::receive_some(socket_, piece);
    if (!count) return end("it closed the connection");
    if (*count == 0) return true;
    heard_ = Clock::now();
    in_.append(reinterpret_cast<const char*>(piece), *count);
    const size_t known = std::min(in_.size(), greeting.size());
    if (!greeted_ && in_.compare(0, known, greeting, 0, known) != 0)
      return end("it did not send the greeting of a launcher");
    if (!greeted_ && known == greeting.size()) in_.erase(0, known), greeted_ = true;
    uint32_t length = 0;
    if (greeted_ && in_.size() >= sizeof length) std::memcpy(&length, in_.data(), sizeof length);
    if (length > longest_)
      return end("it sent a message of " + std::to_string(length) + " bytes; at most " + std::to_string(longest_) +
                 " are accepted");
    if (in_.size() > longest_ + 2 * sizeof piece) return true;  // the input at hand is handled first
  }
}

bool NodeLink::write() {
  while (!out_.empty()) {
    const auto count = comm::send_some(socket_, std::as_bytes(std::span(out_)));
    if (!count) return end("it closed the connection");
    if (*count == 0) return true;
    out_.erase(0, *count);
  }
  return true;
}

std::optional<nlohmann::json> NodeLink::next() {
  uint32_t length = 0;
  if (!greeted_ || in_.size() < sizeof length) return std::nullopt;
  std::memcpy(&length, in_.data(), sizeof length);
  if (length > longest_)
    return end("it sent a message of " + std::to_string(length) + " bytes; at most " + std::to_string(longest_) +
               " are accepted"),
           std::nullopt;
  if (in_.size() < sizeof length + length) return std::nullopt;
  auto message = nlohmann::json::parse(
      in_.begin() + sizeof length, in_.begin() + static_cast<std::ptrdiff_t>(sizeof length + length), nullptr, false);
  in_.erase(0, sizeof length + length);
  if (!message.is_object()) return end("it sent a message that is not a JSON object"), std::nullopt;
  return message;
}

}  // namespace pm::launch
