// SPDX-License-Identifier: Apache-2.0
// Turns the engine's events into the text of an API request: detokenizes, finds stop strings and records metrics.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "worker/server/generation/generation.h"
#include "worker/server/generation/stop_matcher.h"
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// One generated sequence.
class Choice {
 public:
  /// A generated token, which may be the end token.
  struct EmittedToken {
    engine::Token token;
    size_t offset = 0;  ///< characters of the sequence's text before the token
    std::string text;   ///< text that the token completes; empty for an end token
  };
  /// `before` holds the ids that the text continues; `request` is the index of the prompt.
  Choice(const Tokenizer* tokenizer, std::span<const int32_t> before, std::vector<std::string> stops, size_t request);
  /// From now on the text has special tokens too, each between two ReplyParser::special_mark.
  void mark_special_tokens() { marks_special_ = true; }
  /// Returns the text that `event` makes available; empty once the sequence has finished.
  std::string take(const engine::Event& event);
  /// The finish reason: "stop", "length", or "" while the sequence runs.
  const std::string& finish() const { return finish_; }
  bool stopped_by_text() const { return stops_.hit(); }
  const std::string& stop_text() const { return stops_.found(); }  ///< the stop string that ended it, or ""
  size_t request() const { return request_; }                      ///< index of its prompt
  const std::vector<EmittedToken>& tokens() const { return tokens_; }
  std::vector<int32_t> ids(size_t from = 0) const;
  double score() const { return score_; }  ///< score of the beam
  std::optional<Generation::Time> last;    ///< time of its last token

 private:
  void note_special(int32_t id);
  std::string with_special(std::string shown);

  const Tokenizer* tokenizer_;
  std::optional<Detokenizer> detokenizer_;
  StopMatcher stops_;
  bool marks_special_ = false;
  /// Special tokens that are not in the text yet, with the number of bytes before each.
  std::vector<std::pair<size_t, std::string>> special_;
  size_t completed_ = 0, shown_ = 0;  ///< bytes that tokens have completed, and those that take() has returned
  std::vector<EmittedToken> tokens_;
  std::string finish_;
  size_t request_ = 0, characters_ = 0;
  double score_ = 0;
};

/// Runs the engine requests of one API request.
class OutputProcessor {
 public:
  /// Submits the requests. `admitted` is released at the end; `arrived` is the time at which the API request arrived.
  /// Choices are in the order of the requests, with the sequences of one request next to each other. Throws what the
  /// engine throws.
  OutputProcessor(const ServerContext& context, std::vector<engine::Request> requests,
                  const std::vector<std::string>& stops, std::shared_ptr<AccessLogEntry> access,
                  std::shared_ptr<void> admitted, Generation::Time arrived);
  ~OutputProcessor();

  /// Calls `on_text(choice, text)` for each event until all sequences have ended. Returns false, with the sequences
  /// cancelled, when on_text returns false, when the client is gone, or when the client is further behind than
  /// `stream_write_timeout` (0: no limit) or Generation::pending_limit. Throws ApiError 503 when a sequence failed or
  /// the server stops.
  bool run(const std::function<bool(size_t, const std::string&)>& on_text, const std::function<bool()>& client_gone,
           std::chrono::milliseconds stream_write_timeout = {});

  const std::vector<Choice>& choices() const { return choices_; }
  /// The texts of all choices have special tokens too (Choice::mark_special_tokens).
  void mark_special_tokens() {
    for (Choice& choice : choices_) choice.mark_special_tokens();
  }
  const std::vector<int32_t>& prompt(const Choice& choice) const { return prompts_[choice.request()]; }
  /// The passages that were found for the choice's prompt; nullptr where there are none, or not yet.
  const std::shared_ptr<const std::vector<engine::RetrievedPassage>>& passages(const Choice& choice) const {
    return passages_[choice.request()];
  }
  /// Returns the log-probabilities of the prompt's tokens from the second on; nullptr: none.
  const std::shared_ptr<const std::vector<engine::PromptToken>>& scored_prompt(const Choice& choice) const {
    return scored_prompts_[choice.request()];
  }
  int64_t prompt_tokens() const;
  int64_t completion_tokens() const { return access_->tokens; }
  int64_t cached_tokens() const { return cached_; }  ///< tokens of the prompts that the prefix cache provided

 private:
  /// Records metrics of an arrival of which `emitted` tokens belong to the answer.
  void count(Choice& choice, const Generation::Arrival& arrival, size_t emitted);
  void finished(const std::string& reason, Generation::Time now);
  bool take(const Generation::Arrival& arrival, const std::function<bool(size_t, const std::string&)>& on_text);
  bool abandon();
  bool too_slow(Generation::Time oldest, std::chrono::milliseconds stream_write_timeout) const;

  const ServerContext& context_;
  std::shared_ptr<AccessLogEntry> access_;
  std::shared_ptr<void> admitted_;
  const Generation::Time arrived_;
  std::string id_;  ///< id of the first request, for the log
  std::vector<std::vector<int32_t>> prompts_;
  std::vector<std::shared_ptr<const std::vector<engine::RetrievedPassage>>> passages_;   ///< of each prompt
  std::vector<std::shared_ptr<const std::vector<engine::PromptToken>>> scored_prompts_;  ///< likewise
  std::vector<Choice> choices_;
  std::vector<size_t> first_, open_;  ///< per request: its first choice, and choices that have not finished
  size_t unfinished_ = 0;             ///< sequences for which finished() was not called
  int64_t cached_ = 0;
  std::optional<Generation> generation_;
};

}  // namespace pm::server
