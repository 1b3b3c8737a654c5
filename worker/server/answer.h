// One request's sequences turned into text: tokens in, whole characters out, stop strings found, figures counted.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "worker/server/completions.h"
#include "worker/server/stop_matcher.h"

namespace pm::server {

/// One sequence of the answer.
class Choice {
 public:
  /// A generated token, the end token included.
  struct Said {
    engine::Token token;
    size_t offset = 0;       ///< characters of the answer before it
    std::string text;        ///< that became complete with it; none of an end token
  };
  /// `before`: the ids that the text continues.
  Choice(const Tokenizer* tokenizer, std::span<const int32_t> before, std::vector<std::string> stops, size_t request);
  /// Text that may be shown after `event`; nothing once finished.
  std::string take(const engine::Event& event);
  /// "stop", "length", or "" while it runs.
  const std::string& finish() const { return finish_; }
  bool stopped_by_text() const { return stops_.hit(); }
  size_t request() const { return request_; }                ///< which prompt it answers
  const std::vector<Said>& said() const { return said_; }
  std::vector<int32_t> ids(size_t from = 0) const;
  double score() const { return score_; }                    ///< of a beam
  std::optional<Generation::Time> last;                      ///< when its last token came

 private:
  std::optional<Detokenizer> detokenizer_;
  StopMatcher stops_;
  std::vector<Said> said_;
  std::string finish_;
  size_t request_ = 0, characters_ = 0;
  double score_ = 0;
};

class Answer {
 public:
  /// Submits. Throws ApiError or what the engine throws. `admitted` is held until the end; `arrived`: when the request did. Choices stand in the
  /// order of the requests, sequences of one behind another.
  Answer(const Serving& serving, std::vector<engine::Request> requests, const std::vector<std::string>& stops, std::shared_ptr<Access> access,
         std::shared_ptr<void> admitted, Generation::Time arrived);
  ~Answer();

  /// Gives each event's text to `piece` (false: the client is gone) until all sequences have ended. False when the client went away, or has let
  /// more wait than `patience` (0: no limit) or kWaiting: the sequences are then cancelled. Throws ApiError 503 when a sequence failed or the server
  /// stops.
  bool run(const std::function<bool(size_t, const std::string&)>& piece, const std::function<bool()>& client_gone, std::chrono::milliseconds patience = {});

  const std::vector<Choice>& choices() const { return choices_; }
  const std::vector<int32_t>& prompt(const Choice& choice) const { return prompts_[choice.request()]; }
  int64_t prompt_tokens() const;
  int64_t completion_tokens() const { return access_->tokens; }
  int64_t cached_tokens() const { return cached_; }   ///< of the prompts: not computed, for they were there

 private:
  /// Of the arrival's tokens the answer has taken `said`.
  void count(Choice& choice, const Generation::Arrival& arrival, size_t said);
  void finished(const std::string& reason, Generation::Time now);
  bool take(const Generation::Arrival& arrival, const std::function<bool(size_t, const std::string&)>& piece);
  bool leave();
  bool too_slow(Generation::Time oldest, std::chrono::milliseconds patience) const;

  const Serving& serving_;
  std::shared_ptr<Access> access_;
  std::shared_ptr<void> admitted_;
  const Generation::Time arrived_;
  std::string id_;                     ///< of the first request, for the log
  std::vector<std::vector<int32_t>> prompts_;
  std::vector<Choice> choices_;
  std::vector<size_t> first_, open_;   ///< per request: its first choice, and choices that have not finished
  size_t unfinished_ = 0;              ///< sequences that no finished() was called for
  int64_t cached_ = 0;
  std::optional<Generation> generation_;
};

}  // namespace pm::server
