// See answer.h.
#include "worker/server/answer.h"

#include "worker/server/api_error.h"

namespace pm::server {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// How often a waiting request looks whether its client is still there.
constexpr milliseconds kLook{100};

double seconds(steady_clock::duration time) { return duration<double>(time).count(); }

std::vector<int32_t> tokens_of(const Serving& serving, const Prompt& prompt, const std::string& field) {
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) return *ids;
  if (!serving.tokenizer) throw ApiError(400, "no_tokenizer", field + " is text, but this model's folder has no tokenizer that is served; send token ids", field);
  auto ids = serving.tokenizer->encode(std::get<std::string>(prompt));
  if (ids.empty()) throw bad_field(field, "a text of no tokens", "at least one token");
  return ids;
}

/// max_new_tokens of a prompt of `tokens` tokens.
int64_t room(const Serving& serving, const CompletionRequest& request, int64_t tokens, const std::string& field) {
  const std::string window = std::to_string(serving.window);
  if (tokens >= serving.window)
    throw ApiError(400, "context_length_exceeded", field + " has " + std::to_string(tokens) + " tokens; the window of " + window + " needs room for at least one more", field);
  const int64_t left = serving.window - tokens;
  if (request.max_tokens && *request.max_tokens > left)
    throw ApiError(400, "context_length_exceeded",
                   field + " has " + std::to_string(tokens) + " tokens and max_tokens is " + std::to_string(*request.max_tokens) + ", but the window is " +
                       window + "; at most " + std::to_string(left) + " tokens can be generated", "max_tokens");
  return request.max_tokens.value_or(std::min(kDefaultTokens, left));
}

}  // namespace

Choice::Choice(const Tokenizer* tokenizer, std::vector<int32_t> prompt, std::vector<std::string> stops)
    : prompt_(std::move(prompt)), stops_(std::move(stops)) {
  if (tokenizer) detokenizer_.emplace(*tokenizer, prompt_);
}

std::string Choice::take(const engine::Event& event) {
  if (!finish_.empty()) return {};
  const bool ended = event.finish == engine::Finish::Stop || event.finish == engine::Finish::Length;
  std::string shown;
  for (size_t i = 0; i < event.tokens.size(); ++i) {
    ids_.push_back(event.tokens[i].id);
    const bool end_token = event.finish == engine::Finish::Stop && i + 1 == event.tokens.size();   // not part of the text, special token or not
    if (detokenizer_ && !end_token) shown += stops_.push(detokenizer_->push(event.tokens[i].id));
  }
  if (ended && detokenizer_) shown += stops_.push(detokenizer_->flush()) + stops_.flush();
  if (stops_.hit()) finish_ = "stop";
  else if (ended) finish_ = event.finish == engine::Finish::Stop ? "stop" : "length";
  return shown;
}

Answer::Answer(const Serving& serving, const CompletionRequest& request, const std::string& id, std::shared_ptr<Access> access,
               std::shared_ptr<void> admitted)
    : serving_(serving), access_(std::move(access)), admitted_(std::move(admitted)), arrived_(steady_clock::now()) {
  const engine::Sampling sampling = sampling_of(request, serving.sampling, serving.random());
  std::vector<engine::Request> sequences;
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const std::string field = request.prompts.size() == 1 ? "prompt" : "prompt[" + std::to_string(i) + "]";
    engine::Request sequence;
    sequence.id = id + "-" + std::to_string(i);
    sequence.prompt = tokens_of(serving, request.prompts[i], field);
    sequence.max_new_tokens = room(serving, request, static_cast<int64_t>(sequence.prompt.size()), field);
    sequence.sampling = sampling;
    sequence.sampling.seed += i;   // prompts of one request draw different numbers
    sequence.eos = serving.eos;
    sequence.ignore_eos = request.ignore_eos;
    choices_.emplace_back(serving.tokenizer, sequence.prompt, request.stop);
    sequences.push_back(std::move(sequence));
  }
  generation_.emplace(serving.engine, std::move(sequences));
  unfinished_ = choices_.size();
}

Answer::~Answer() {
  for (; unfinished_ > 0; --unfinished_) serving_.metrics.finished("cancelled", seconds(steady_clock::now() - arrived_));
}

int64_t Answer::prompt_tokens() const {
  int64_t sum = 0;
  for (const auto& choice : choices_) sum += static_cast<int64_t>(choice.prompt().size());
  return sum;
}

void Answer::finished(const std::string& reason, Generation::Time now) {
  serving_.metrics.finished(reason, seconds(now - arrived_));
  --unfinished_;
}

void Answer::count(Choice& choice, const Generation::Arrival& arrival) {
  if (arrival.event.queued_seconds >= 0) serving_.metrics.queued(arrival.event.queued_seconds);
  if (arrival.event.tokens.empty()) return;
  access_->tokens += static_cast<int64_t>(arrival.event.tokens.size());
  if (choice.last) serving_.metrics.next_token(seconds(arrival.time - *choice.last));
  else serving_.metrics.first_token(seconds(arrival.time - arrived_));
  choice.last = arrival.time;
}

bool Answer::run(const std::function<bool(size_t, const std::string&)>& piece, const std::function<bool()>& client_gone) {
  auto look = steady_clock::now() + kLook;
  while (!generation_->done()) {
    for (const auto& arrival : generation_->wait(kLook)) {
      Choice& choice = choices_[arrival.index];
      if (!choice.finish().empty()) continue;   // ended by a stop string while later tokens were on their way
      if (arrival.event.finish == engine::Finish::Failed || arrival.event.finish == engine::Finish::Cancelled) {
        finished(arrival.event.finish == engine::Finish::Failed ? "failed" : "cancelled", arrival.time);
        throw unavailable("rank_lost", "the request could not be finished: " + (arrival.event.reason.empty() ? "the server is stopping" : arrival.event.reason), 5);
      }
      count(choice, arrival);
      const std::string text = choice.take(arrival.event);
      if (!choice.finish().empty()) {
        finished(choice.finish(), arrival.time);
        generation_->cancel(arrival.index);
      }
      if (!piece(arrival.index, text)) return false;
    }
    if (serving_.stopping) throw unavailable("draining", "the server stops; the request was not finished", 5);
    if (steady_clock::now() < look) continue;
    look = steady_clock::now() + kLook;
    if (!generation_->done() && client_gone()) {
      generation_.reset();
      return false;
    }
  }
  return true;
}

}  // namespace pm::server
