// SPDX-License-Identifier: Apache-2.0
// The C++ side of replies: calls the C ABI of worker/tokenizer/ffi.
#include "worker/tokenizer/reply_form.h"

#include <nlohmann/json.hpp>

#include "worker/base/error.h"
#include "worker/tokenizer/buffer.h"
#include "worker/tokenizer/token_matcher.h"

namespace pm {
namespace {

using nlohmann::json;

const uint8_t* bytes(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }

void check(int status, const Buffer& error, Reason reason = Reason::InvalidRequest) {
  if (status != 0) throw Error(reason, error.text());
}

TxReplyForm* form(const std::shared_ptr<void>& handle) { return static_cast<TxReplyForm*>(handle.get()); }

std::shared_ptr<void> owned(TxReplyForm* handle) {
  return {handle, [](void* p) { tx_reply_free(static_cast<TxReplyForm*>(p)); }};
}

ReplyEvent event_of(const json& event) {
  const std::string& kind = event.at(0).get_ref<const std::string&>();
  if (kind == "content") return {ReplyEvent::Kind::Content, 0, event.at(1)};
  if (kind == "reasoning") return {ReplyEvent::Kind::Reasoning, 0, event.at(1)};
  return {kind == "call" ? ReplyEvent::Kind::Call : ReplyEvent::Kind::Arguments, event.at(1), event.at(2)};
}

}  // namespace

std::optional<ReplyForm> ReplyForm::find(const std::filesystem::path& folder, const std::string& family,
                                         std::string* problem) {
  Buffer text, error;
  check(tx_response_template(folder.c_str(), &text, &error), error, Reason::ModelUnreadable);
  TxReplyForm* made = nullptr;
  if (text.len > 0) {
    Buffer refusal;
    if (tx_reply_open(text.ptr, text.len, family.c_str(), &made, &refusal) == 0) return ReplyForm(owned(made));
    *problem = refusal.text();
  }
  if (family.empty()) return std::nullopt;
  Buffer unknown;
  check(tx_reply_open(nullptr, 0, family.c_str(), &made, &unknown), unknown, Reason::UnsupportedPolicy);
  return ReplyForm(owned(made));
}

ReplyParser ReplyForm::begin(std::string_view prompt, std::string_view tools, bool calls) const {
  TxReplyParser* made = nullptr;
  Buffer error;
  check(tx_parser_begin(form(handle_), bytes(prompt), prompt.size(), bytes(tools), tools.size(), calls, &made, &error),
        error);
  return ReplyParser(std::shared_ptr<void>(made, [](void* p) { tx_parser_free(static_cast<TxReplyParser*>(p)); }));
}

std::string ReplyForm::grammar(const Tokenizer& tokenizer, std::string_view request) const {
  const std::shared_ptr<void> vocabulary = TokenMatcher::vocabulary(tokenizer);
  Buffer text, error;
  check(tx_reply_grammar(form(handle_), static_cast<const TxVocabulary*>(vocabulary.get()), bytes(request),
                         request.size(), &text, &error),
        error);
  return text.text();
}

bool ReplyParser::is_reasoning() const {
  return tx_parser_is_reasoning(static_cast<const TxReplyParser*>(handle_.get()));
}

std::vector<ReplyEvent> ReplyParser::read(std::string_view text, bool ends) {
  Buffer events, error;
  check(tx_parser_feed(static_cast<TxReplyParser*>(handle_.get()), bytes(text), text.size(), ends, &events, &error),
        error);
  std::vector<ReplyEvent> all;
  for (const json& event : json::parse(events.text())) all.push_back(event_of(event));
  return all;
}

}  // namespace pm
