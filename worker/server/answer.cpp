// See answer.h.
#include "worker/server/answer.h"

#include <algorithm>

#include "worker/server/api_error.h"
#include "worker/server/engine_requests.h"
#include "worker/base/log.h"

namespace pm::server {
namespace {

using engine::Finish;
using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// How often a waiting request looks whether its client is still there.
constexpr milliseconds kLook{100};

double seconds(steady_clock::duration time) { return duration<double>(time).count(); }

size_t characters_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

Choice::Choice(const Tokenizer* tokenizer, std::span<const int32_t> before, std::vector<std::string> stops, size_t request)
    : stops_(std::move(stops)), request_(request) {
  if (tokenizer) detokenizer_.emplace(*tokenizer, before);
}

std::vector<int32_t> Choice::ids(size_t from) const {
  std::vector<int32_t> ids;
  for (size_t i = from; i < said_.size(); ++i) ids.push_back(said_[i].token.id);
  return ids;
}

std::string Choice::take(const engine::Event& event) {
  if (!finish_.empty()) return {};
  const bool ended = event.finish == Finish::Stop || event.finish == Finish::Length;
  std::string shown;
  for (size_t i = 0; i < event.tokens.size() && !stops_.hit(); ++i) {
    said_.push_back({event.tokens[i], characters_, {}});
    const bool end_token = event.finish == Finish::Stop && i + 1 == event.tokens.size();   // not part of the text, special token or not
    if (!detokenizer_ || end_token) continue;
    said_.back().text = detokenizer_->push(event.tokens[i].id);
    characters_ += characters_of(said_.back().text);
    shown += stops_.push(said_.back().text);
  }
  if (ended && detokenizer_) shown += stops_.push(detokenizer_->flush()) + stops_.flush();
  if (stops_.hit()) finish_ = "stop";
  else if (ended) finish_ = event.finish == Finish::Stop ? "stop" : "length";
  score_ = event.score;
  return shown;
}

Answer::Answer(const Serving& serving, std::vector<engine::Request> requests, const std::vector<std::string>& stops, std::shared_ptr<Access> access,
               std::shared_ptr<void> admitted, Generation::Time arrived)
    : serving_(serving), access_(std::move(access)), admitted_(std::move(admitted)), arrived_(arrived), id_(requests.at(0).id) {
  for (const engine::Request& request : requests) {
    const std::span<const int32_t> before = reads_source(serving) ? std::span<const int32_t>() : request.prompt;
    const auto count = static_cast<size_t>(request.search.num_return_sequences);
    first_.push_back(choices_.size());
    open_.push_back(count);
    for (size_t i = 0; i < count; ++i) choices_.emplace_back(serving.tokenizer, before, stops, prompts_.size());
    prompts_.push_back(request.prompt);
  }
  generation_.emplace(serving.engine, std::move(requests));
  unfinished_ = choices_.size();
}

Answer::~Answer() {
  for (; unfinished_ > 0; --unfinished_) serving_.metrics.finished("cancelled", seconds(steady_clock::now() - arrived_));
}

int64_t Answer::prompt_tokens() const {
  int64_t sum = 0;
  for (const auto& prompt : prompts_) sum += static_cast<int64_t>(prompt.size());
  return sum;
}

void Answer::finished(const std::string& reason, Generation::Time now) {
  serving_.metrics.finished(reason, seconds(now - arrived_));
  --unfinished_;
}

void Answer::count(Choice& choice, const Generation::Arrival& arrival, size_t said) {
  if (arrival.event.queued_seconds >= 0) serving_.metrics.queued(arrival.event.queued_seconds);
  if (arrival.event.queued_seconds >= 0 && arrival.event.tokens.size() == 1)   // beams come whole, at their end
    serving_.metrics.prefilled(std::max(0.0, seconds(arrival.time - arrived_) - arrival.event.queued_seconds));
  cached_ += std::max<int64_t>(arrival.event.cached_tokens, 0);
  if (arrival.event.tokens.empty()) return;
  access_->tokens += static_cast<int64_t>(said);
  // tokens that came in several events before anybody looked: the time between them is shared out evenly
  size_t intervals = std::min(arrival.events, said);
  Generation::Time since = arrival.time;
  if (choice.last) {
    since = *choice.last;
  } else {
    serving_.metrics.first_token(seconds(arrival.time - arrived_));
    intervals -= std::min<size_t>(intervals, 1);
  }
  for (size_t i = 0; i < intervals; ++i) serving_.metrics.next_token(seconds(arrival.last - since) / static_cast<double>(intervals));
  choice.last = arrival.last;
}

bool Answer::take(const Generation::Arrival& arrival, const std::function<bool(size_t, const std::string&)>& piece) {
  const size_t index = first_[arrival.index] + static_cast<size_t>(arrival.event.sequence);
  Choice& choice = choices_.at(index);
  if (!choice.finish().empty()) return true;   // ended by a stop string while later tokens were on their way
  const Finish finish = arrival.event.finish;
  if (finish == Finish::Failed || finish == Finish::Cancelled) {
    finished(finish == Finish::Failed ? "failed" : "cancelled", arrival.time);
    throw unavailable("rank_lost", "the request could not be finished: " + (arrival.event.reason.empty() ? "the server is stopping" : arrival.event.reason), 5);
  }
  const size_t before = choice.said().size();
  const std::string text = choice.take(arrival.event);
  count(choice, arrival, choice.said().size() - before);   // what came after a stop string is not part of the answer
  if (!choice.finish().empty()) {
    finished(choice.finish(), arrival.time);
    if (--open_[arrival.index] == 0) generation_->cancel(arrival.index);
  }
  return piece(index, text);
}

/// The engine goes on while a reader is waited for, so that what it has made piles up.
bool Answer::too_slow(Generation::Time oldest, milliseconds patience) const {
  const auto late = steady_clock::now() - oldest;
  const bool lost = generation_->overflowed();
  if (lost && patience.count() == 0) throw std::runtime_error("tokens came faster than they were collected");
  if (!lost && (patience.count() == 0 || late <= patience)) return false;
  LOG(WARNING) << "id=" << id_ << " cancelled: the client is " << seconds(late) << " s behind in reading its stream";
  return true;
}

/// False, for run to return.
bool Answer::leave() {
  if (!generation_->done()) LOG(INFO) << "id=" << id_ << " cancelled: the client has gone, or does not read its reply";
  generation_.reset();
  return false;
}

bool Answer::run(const std::function<bool(size_t, const std::string&)>& piece, const std::function<bool()>& client_gone, milliseconds patience) {
  auto look = steady_clock::now() + kLook;
  while (!generation_->done()) {
    for (const auto& arrival : generation_->wait(kLook)) {
      if (too_slow(arrival.time, patience) || !take(arrival, piece)) return leave();
    }
    if (serving_.stopping) throw unavailable("draining", "the server stops; the request was not finished", 5);
    if (steady_clock::now() < look) continue;
    look = steady_clock::now() + kLook;
    if (!generation_->done() && client_gone()) return leave();
  }
  return true;
}

}  // namespace pm::server
