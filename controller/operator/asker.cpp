#include "controller/operator/asker.h"

#include <utility>

#include "controller/client/http_get.h"
#include "controller/operator/names.h"

namespace pm::op {

namespace {

constexpr std::chrono::milliseconds timeout{1000}, pause{1900}, patience{50};
constexpr size_t most_status_bytes = 64 << 10;
constexpr std::chrono::minutes answer_life{2};

}  // namespace

std::optional<k8s::Json> HttpStatusProbe::ask(const std::string& pod_ip) {
  const auto reply = k8s::http_get(pod_ip, ops_port, "/status", timeout, most_status_bytes);
  const auto* good = std::get_if<k8s::PlainReply>(&reply);
  if (!good || good->status != 200) return std::nullopt;
  k8s::Json json = k8s::Json::parse(good->body, nullptr, false);
  return json.is_object() ? std::optional<k8s::Json>(std::move(json)) : std::nullopt;
}

Asker::Asker(StatusProbe& probe, const k8s::Clock& clock, News news, int threads) : probe_(probe), clock_(clock), news_(std::move(news)), forgotten_(clock.now()) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this](std::stop_token stop) { work(stop); });
}

Asker::~Asker() {
  for (auto& thread : threads_) thread.request_stop();
}

std::optional<k8s::Json> Asker::latest(const k8s::Json& pod, bool ready, const k8s::Key& model) {
  const std::string uid = k8s::uid_of(pod);
  const auto now = clock_.now();
  std::unique_lock lock(mutex_);
  forget(now);
  const auto [found, first] = answers_.try_emplace(uid);
  Answer& answer = found->second;
  answer.wanted = now;
  const bool turned = ready && !answer.ready;
  if (turned) answer.json.reset(), answer.ready = true;
  if (answer.pending) answer.again |= turned;
  else if (first || turned || answer.asked + pause <= now) put(answer, {uid, k8s::string_at(pod, "/status/podIP"), model});
  if (!turned) return answer.json;
  answer.awaited = true;
  answered_.wait_for(lock, patience, [&] { return !answer.pending; });   // a pending answer is not forgotten
  answer.awaited = false;
  return answer.json;
}

void Asker::put(Answer& answer, Question question) {
  answer.pending = true;
  questions_.push_back(std::move(question));
  changed_.notify_one();
}

/// Of pods that no pass has looked at for long.
void Asker::forget(k8s::Clock::Steady now) {
  if (now - forgotten_ < answer_life) return;
  forgotten_ = now;
  std::erase_if(answers_, [&](const auto& entry) { return !entry.second.pending && entry.second.wanted + answer_life < now; });
}

void Asker::work(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !questions_.empty(); })) {
    if (stop.stop_requested()) return;
    const Question question = std::move(questions_.front());
    questions_.pop_front();
    answers_[question.uid].asked = clock_.now();
    lock.unlock();
    auto json = probe_.ask(question.ip);
    lock.lock();
    Answer& answer = answers_[question.uid];
    answer.pending = false;
    if (std::exchange(answer.again, false)) {   // what it said is of before it was ready
      put(answer, question);
      continue;
    }
    const bool news = answer.json != json && !answer.awaited;
    answer.json = std::move(json);
    answered_.notify_all();
    if (!news) continue;
    lock.unlock();
    news_(question.model);
    lock.lock();
  }
}

}  // namespace pm::op
