// SPDX-License-Identifier: Apache-2.0
// Response templates of checkpoints and replies of models. The input is a template up to a null byte, a prompt up to
// the next, and the reply; its first byte says where the reply is cut. However it is cut, the events give the same
// message.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/input.h"
#include "worker/tokenizer/ffi/textops.h"

namespace {

using pm::fuzz::hold;

const uint8_t* bytes(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }

/// Frees a text and returns it.
std::string taken(TxBuf& buffer) {
  std::string text = pm::fuzz::text(buffer.ptr, buffer.len);
  tx_buf_free(buffer);
  buffer = {};
  return text;
}

TxReplyForm* open(std::string_view response_template) {
  TxReplyForm* form = nullptr;
  TxBuf error{};
  const bool own = !response_template.empty();
  const int status =
      tx_reply_open(bytes(response_template), response_template.size(), own ? "" : "chatml", &form, &error);
  const std::string reason = taken(error);
  hold(status != 2, "opening panics: " + reason);
  hold(status == 0 || !reason.empty(), "a template is refused without a reason");
  return status == 0 ? form : nullptr;
}

/// Adds events to a message: content, reasoning, then a name and arguments of each call.
void add(std::vector<std::string>& message, const nlohmann::json& events) {
  for (const auto& event : events) {
    const std::string& kind = event.at(0).get_ref<const std::string&>();
    const bool text = kind == "content" || kind == "reasoning";
    const size_t place = text ? kind == "reasoning" : 2 + 2 * event.at(1).get<size_t>() + (kind == "arguments");
    if (message.size() <= place) message.resize(place + 1);
    message[place] += event.at(text ? 1 : 2).get_ref<const std::string&>();
  }
}

/// Returns the message of a reply that is cut in two.
std::vector<std::string> parse(const TxReplyForm* form, std::string_view prompt, std::string_view reply, size_t cut) {
  TxReplyParser* parser = nullptr;
  TxBuf error{}, out{};
  const std::string_view tools =
      R"([{"function": {"name": "f", "parameters": {"properties": {"a": {"type": "null"}}}}}])";
  hold(tx_parser_begin(form, bytes(prompt), prompt.size(), bytes(tools), tools.size(), true, &parser, &error) == 0,
       "a reply cannot begin");
  std::vector<std::string> message(2);
  for (const bool ends : {false, true}) {
    const std::string_view piece = ends ? reply.substr(cut) : reply.substr(0, cut);
    hold(tx_parser_feed(parser, bytes(piece), piece.size(), ends, &out, &error) == 0, "reading fails");
    add(message, nlohmann::json::parse(taken(out)));
  }
  tx_parser_free(parser);
  return message;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t first = input.find('\0'), second = first == input.npos ? first : input.find('\0', first + 1);
  if (second == input.npos) return 0;
  TxReplyForm* form = open(input.substr(0, first));
  if (!form) return 0;
  const std::string_view prompt = input.substr(first + 1, second - first - 1), reply = input.substr(second + 1);
  const size_t cut = reply.empty() ? 0 : data[0] % reply.size();
  hold(parse(form, prompt, reply, 0) == parse(form, prompt, reply, cut), "a cut changes a message");
  tx_reply_free(form);
  return 0;
}
