// One request's sequences turned into text: tokens in, whole characters out, stop strings found, figures counted.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "worker/server/completions.h"
#include "worker/server/stop_matcher.h"

namespace pm::server {

/// max_tokens of a request that does not say, as OpenAI's.
constexpr int64_t kDefaultTokens = 16;

/// One sequence of the answer.
class Choice {
 public:
  Choice(const Tokenizer* tokenizer, std::vector<int32_t> prompt, std::vector<std::string> stops);
  /// Text that may be shown after `event`; nothing once finished.
  std::string take(const engine::Event& event);
  /// "stop", "length", or "" while it runs.
  const std::string& finish() const { return finish_; }
  const std::vector<int32_t>& prompt() const { return prompt_; }
  const std::vector<int32_t>& ids() const { return ids_; }   ///< generated, the end token included
  std::optional<Generation::Time> last;                      ///< when its last token came

 private:
  std::vector<int32_t> prompt_, ids_;
  std::optional<Detokenizer> detokenizer_;
  StopMatcher stops_;
  std::string finish_;
};

class Answer {
 public:
  /// Tokenizes, checks lengths against the window, submits. Throws ApiError or what the engine throws. `admitted` is held until the end.
  Answer(const Serving& serving, const CompletionRequest& request, const std::string& id, std::shared_ptr<Access> access, std::shared_ptr<void> admitted);
  ~Answer();

  /// Gives each event's text to `piece` (false: the client is gone) until all sequences have ended. False when the client went away: the
  /// sequences are then cancelled. Throws ApiError 503 when a sequence failed or the server stops.
  bool run(const std::function<bool(size_t, const std::string&)>& piece, const std::function<bool()>& client_gone);

  const std::vector<Choice>& choices() const { return choices_; }
  int64_t prompt_tokens() const;
  int64_t completion_tokens() const { return access_->tokens; }

 private:
  void count(Choice& choice, const Generation::Arrival& arrival);
  void finished(const std::string& reason, Generation::Time now);

  const Serving& serving_;
  std::shared_ptr<Access> access_;
  std::shared_ptr<void> admitted_;
  const Generation::Time arrived_;
  std::vector<Choice> choices_;
  size_t unfinished_ = 0;              ///< sequences that no finished() was called for
  std::optional<Generation> generation_;
};

}  // namespace pm::server
