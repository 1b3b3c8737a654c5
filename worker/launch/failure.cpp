// See failure.h.
#include "worker/launch/failure.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace pm::launch {
namespace {

constexpr size_t most_bytes = 1024;

std::string render(const Failure& failure, const std::string& message) {
  const nlohmann::ordered_json json{{"rank", failure.rank}, {"reason", failure.reason}, {"exitCode", failure.exit_code}, {"message", message}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

const Failure& cause_of(const std::vector<Failure>& failures) {
  const auto cause = std::find_if(failures.begin(), failures.end(), [](const Failure& f) { return f.reason != "CommunicatorAborted"; });
  return cause != failures.end() ? *cause : failures.front();
}

std::string termination_message(const Failure& failure) {
  std::string message = failure.message;
  std::string text = render(failure, message);
  while (text.size() > most_bytes && !message.empty()) {   // quotes and control characters take more bytes than one
    const size_t over = text.size() - most_bytes;
    size_t keep = message.size() - std::min(message.size(), std::max<size_t>(1, over / 6));
    while (keep > 0 && (static_cast<unsigned char>(message[keep]) & 0xC0) == 0x80) --keep;   // never half a UTF-8 character
    message.resize(keep);
    text = render(failure, message);
  }
  return text;
}

bool write_termination_message(const std::string& path, const Failure& failure) {
  if (path.empty()) return false;
  const int file = open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (file < 0) return false;
  const std::string text = termination_message(failure);
  const bool whole = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(file);
  return whole;
}

}  // namespace pm::launch
