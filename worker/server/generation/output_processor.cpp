// SPDX-License-Identifier: Apache-2.0
#include "worker/server/generation/output_processor.h"

#include <algorithm>

#include "base/utf8.h"
#include "worker/server/generation/engine_requests.h"
#include "worker/server/http/api_error.h"

#include "base/log.h"

namespace pm::server {
namespace {

using engine::Finish;
using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// Interval at which a waiting request checks that its client is still connected.
constexpr milliseconds poll_interval{100};

double seconds(steady_clock::duration time) { return duration<double>(time).count(); }

}  // namespace

Choice::Choice(const Tokenizer* tokenizer, std::span<const int32_t> before, std::vector<std::string> stops,
               size_t request)
    : tokenizer_(tokenizer), stops_(std::move(stops)), request_(request) {
  if (tokenizer) detokenizer_.emplace(*tokenizer, before);
}

std::vector<int32_t> Choice::ids(size_t from) const {
  std::vector<int32_t> ids;
  for (size_t i = from; i < tokens_.size(); ++i) ids.push_back(tokens_[i].token.id);
  return ids;
}

std::string Choice::take(const engine::Event& event) {
  if (!finish_.empty()) return {};
  const bool ended = event.finish == Finish::Stop || event.finish == Finish::Length;
  std::string shown;
  for (size_t i = 0; i < event.tokens.size() && !stops_.hit(); ++i) {
    tokens_.push_back({event.tokens[i], characters_, {}});
    const bool end_token = event.finish == Finish::Stop && !event.ends_with_text &&
                           i + 1 == event.tokens.size();  // an end token is never part of the text
    if (!detokenizer_ || end_token) continue;
    tokens_.back().text = detokenizer_->push(event.tokens[i].id);
    characters_ += base::count_characters(tokens_.back().text);
    completed_ += tokens_.back().text.size();
    if (marks_special_) note_special(event.tokens[i].id);
    shown += stops_.push(tokens_.back().text);
  }
  if (ended && detokenizer_) shown += stops_.push(detokenizer_->flush()) + stops_.flush();
  if (stops_.hit())
    finish_ = "stop";
  else if (ended)
    finish_ = event.finish == Finish::Stop ? "stop" : "length";
  score_ = event.score;
  return with_special(std::move(shown));
}

/// Notes the text of a special token, which decoding skips.
void Choice::note_special(int32_t id) {
  if (!tokenizer_->decode({&id, 1}).empty() || tokenizer_->decode({&id, 1}, false).empty()) return;
  special_.emplace_back(completed_,
                        ReplyParser::special_mark + tokenizer_->id_to_token(id) + ReplyParser::special_mark);
}

/// Returns `shown` with the special tokens that stand in it. Text that a stop string may begin with is held back, and
/// the tokens behind it are too.
std::string Choice::with_special(std::string shown) {
  if (special_.empty()) {
    shown_ += shown.size();
    return shown;
  }
  std::string all;
  size_t used = 0, taken = 0;
  for (; taken < special_.size() && special_[taken].first <= shown_ + shown.size(); ++taken) {
    const size_t before = special_[taken].first - shown_;
    all += shown.substr(used, before - used) + special_[taken].second;
    used = before;
  }
  special_.erase(special_.begin(), special_.begin() + static_cast<ptrdiff_t>(taken));
  shown_ += shown.size();
  return all + shown.substr(used);
}

OutputProcessor::OutputProcessor(const ServerContext& context, std::vector<engine::Request> requests,
                                 const std::vector<std::string>& stops, std::shared_ptr<AccessLogEntry> access,
                                 std::shared_ptr<void> admitted, Generation::Time arrived)
    : context_(context),
      access_(std::move(access)),
      admitted_(std::move(admitted)),
      arrived_(arrived),
      id_(requests.at(0).id) {
  for (const engine::Request& request : requests) {
    const std::span<const int32_t> before = is_encoder_decoder(context) ? std::span<const int32_t>() : request.prompt;
    const auto count = static_cast<size_t>(request.search.num_return_sequences);
    first_.push_back(choices_.size());
    open_.push_back(count);
    for (size_t i = 0; i < count; ++i) choices_.emplace_back(context.tokenizer, before, stops, prompts_.size());
    prompts_.push_back(request.prompt);
  }
  passages_.resize(prompts_.size());
  scored_prompts_.resize(prompts_.size());
  generation_.emplace(context.engine, std::move(requests));
  unfinished_ = choices_.size();
}

OutputProcessor::~OutputProcessor() {
  for (; unfinished_ > 0; --unfinished_)
    context_.metrics.finished("cancelled", seconds(steady_clock::now() - arrived_));
}

int64_t OutputProcessor::prompt_tokens() const {
  int64_t sum = 0;
  for (const auto& prompt : prompts_) sum += static_cast<int64_t>(prompt.size());
  return sum;
}

void OutputProcessor::finished(const std::string& reason, Generation::Time now) {
  context_.metrics.finished(reason, seconds(now - arrived_));
  --unfinished_;
}

void OutputProcessor::count(Choice& choice, const Generation::Arrival& arrival, size_t emitted) {
  if (arrival.event.queued_seconds >= 0) context_.metrics.queued(arrival.event.queued_seconds);
  // the engine sends a token per event, and waiting events are merged; beam search delivers its sequences at the end
  const bool token_by_token = !arrival.event.tokens.empty() && arrival.event.tokens.size() <= arrival.events;
  if (arrival.event.queued_seconds >= 0 && token_by_token)
    context_.metrics.prefilled(std::max(0.0, seconds(arrival.time - arrived_) - arrival.event.queued_seconds));
  cached_ += std::max<int64_t>(arrival.event.cached_tokens, 0);
  if (arrival.event.tokens.empty()) return;
  access_->tokens += static_cast<int64_t>(emitted);
  // the times of merged events are not known one by one: the interval is divided evenly among them
  size_t intervals = std::min(arrival.events, emitted);
  Generation::Time since = arrival.time;
  if (choice.last) {
    since = *choice.last;
  } else {
    context_.metrics.first_token(seconds(arrival.time - arrived_));
    intervals -= std::min<size_t>(intervals, 1);
  }
  for (size_t i = 0; i < intervals; ++i)
    context_.metrics.next_token(seconds(arrival.last - since) / static_cast<double>(intervals));
  choice.last = arrival.last;
}

bool OutputProcessor::take(const Generation::Arrival& arrival,
                           const std::function<bool(size_t, const std::string&)>& on_text) {
  const size_t index = first_[arrival.index] + static_cast<size_t>(arrival.event.sequence);
  Choice& choice = choices_.at(index);
  if (!choice.finish().empty()) return true;  // a stop string ended it while later tokens were in flight
  if (arrival.event.passages) passages_[arrival.index] = arrival.event.passages;
  if (arrival.event.prompt_tokens) scored_prompts_[arrival.index] = arrival.event.prompt_tokens;
  const Finish finish = arrival.event.finish;
  if (finish == Finish::Failed || finish == Finish::Cancelled) {
    finished(finish == Finish::Failed ? "failed" : "cancelled", arrival.time);
    if (arrival.event.constraint_failed)
      throw ApiError(400, "constraint_failed",
                     "the answer cannot be continued as its constraint demands: " + arrival.event.reason);
    throw unavailable("rank_lost",
                      "the request could not be finished: " +
                          (arrival.event.reason.empty() ? "the server is stopping" : arrival.event.reason),
                      5);
  }
  const size_t before = choice.tokens().size();
  const std::string text = choice.take(arrival.event);
  count(choice, arrival, choice.tokens().size() - before);  // tokens after a stop string are not part of the answer
  if (!choice.finish().empty()) {
    finished(choice.finish(), arrival.time);
    if (--open_[arrival.index] == 0) generation_->cancel(arrival.index);
  }
  return on_text(index, text);
}

/// The engine continues while a slow reader blocks the stream, so tokens accumulate.
bool OutputProcessor::too_slow(Generation::Time oldest, milliseconds stream_write_timeout) const {
  const auto late = steady_clock::now() - oldest;
  const bool lost = generation_->overflowed();
  if (lost && stream_write_timeout.count() == 0)
    throw std::runtime_error("tokens came faster than they were collected");
  if (!lost && (stream_write_timeout.count() == 0 || late <= stream_write_timeout)) return false;
  LOG(WARNING) << "id=" << id_ << " cancelled: the client is " << seconds(late) << " s behind in reading its stream";
  return true;
}

/// Cancels the sequences. Returns false, the result of run().
bool OutputProcessor::abandon() {
  if (!generation_->done())
    LOG(INFO) << "id=" << id_ << " cancelled: the client has disconnected or does not read its reply";
  generation_.reset();
  return false;
}

bool OutputProcessor::run(const std::function<bool(size_t, const std::string&)>& on_text,
                          const std::function<bool()>& client_gone, milliseconds stream_write_timeout) {
  auto next_poll = steady_clock::now() + poll_interval;
  while (!generation_->done()) {
    for (const auto& arrival : generation_->wait(poll_interval)) {
      if (too_slow(arrival.time, stream_write_timeout) || !take(arrival, on_text)) return abandon();
    }
    if (context_.stopping) throw unavailable("draining", "the server stops; the request was not finished", 5);
    if (steady_clock::now() < next_poll) continue;
    next_poll = steady_clock::now() + poll_interval;
    if (!generation_->done() && client_gone()) return abandon();
  }
  return true;
}

}  // namespace pm::server
