#include "controller/operator/asker.h"

#include <algorithm>
#include <utility>

#include "controller/client/http_get.h"
#include "controller/operator/names.h"

namespace pm::op {

namespace {

constexpr std::chrono::milliseconds timeout{1000}, pause{1900}, patience{50};
constexpr size_t most_status_bytes = 64 << 10;

}  // namespace

std::optional<k8s::Json> HttpStatusProbe::ask(const std::string& pod_ip) {
  const auto reply = k8s::http_get(pod_ip, ops_port, "/status", timeout, most_status_bytes);
  const auto* good = std::get_if<k8s::PlainReply>(&reply);
  if (!good || good->status != 200) return std::nullopt;
  k8s::Json json = k8s::Json::parse(good->body, nullptr, false);
  return json.is_object() ? std::optional<k8s::Json>(std::move(json)) : std::nullopt;
}

Asker::Asker(StatusProbe& probe, const k8s::Clock& clock, News news, int threads) : probe_(probe), clock_(clock), news_(std::move(news)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this](std::stop_token stop) { work(stop); });
}

Asker::~Asker() {
  for (auto& thread : threads_) thread.request_stop();
}

std::optional<k8s::Json> Asker::latest(const k8s::Json& pod, bool ready, const k8s::Key& model) {
  const std::string uid = k8s::uid_of(pod);
  const auto now = clock_.now();
  std::unique_lock lock(mutex_);
  const auto [found, first] = answers_[model].try_emplace(uid);
  Answer& answer = found->second;
  answer.unwanted = false;
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

void Asker::forget_others(const k8s::Key& model, const std::vector<k8s::ObjectPtr>& pods) {
  const std::lock_guard lock(mutex_);
  const auto known = answers_.find(model);
  if (known == answers_.end()) return;
  for (auto entry = known->second.begin(); entry != known->second.end();) {
    Answer& answer = entry->second;
    answer.unwanted = std::none_of(pods.begin(), pods.end(), [&](const auto& pod) { return k8s::uid_of(*pod) == entry->first; });
    entry = answer.unwanted && !answer.pending ? known->second.erase(entry) : std::next(entry);
  }
  if (known->second.empty()) answers_.erase(known);
}

void Asker::drop(const Question& question) {
  Answers& answers = answers_[question.model];
  answers.erase(question.uid);
  if (answers.empty()) answers_.erase(question.model);
}

void Asker::work(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !questions_.empty(); })) {
    if (stop.stop_requested()) return;
    const Question question = std::move(questions_.front());
    questions_.pop_front();
    answers_[question.model][question.uid].asked = clock_.now();
    lock.unlock();
    auto json = probe_.ask(question.ip);
    lock.lock();
    Answer& answer = answers_[question.model][question.uid];   // there: a pending answer is not forgotten
    answer.pending = false;
    if (answer.unwanted) {
      drop(question);
      continue;
    }
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
