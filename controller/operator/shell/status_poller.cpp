// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/shell/status_poller.h"

#include <algorithm>
#include <utility>

#include "contract/ports.h"
#include "controller/client/http_get.h"
#include "controller/operator/api/names.h"

namespace pm::op {

namespace {

constexpr std::chrono::milliseconds timeout{1000}, pause{1900}, patience{50};
constexpr size_t max_status_bytes = 64 << 10;

}  // namespace

std::optional<k8s::Json> HttpStatusProbe::fetch_status(const std::string& pod_ip) {
  const auto reply = k8s::http_get(pod_ip, admin_port, "/status", timeout, max_status_bytes);
  const auto* good = std::get_if<k8s::PlainReply>(&reply);
  if (!good || good->status != 200) return std::nullopt;
  k8s::Json json = k8s::Json::parse(good->body, nullptr, false);
  return json.is_object() ? std::optional<k8s::Json>(std::move(json)) : std::nullopt;
}

StatusPoller::StatusPoller(StatusProbe& probe, const k8s::Clock& clock, OnChange on_change, int threads)
    : probe_(probe), clock_(clock), on_change_(std::move(on_change)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this](std::stop_token stop) { poll_loop(stop); });
}

StatusPoller::~StatusPoller() {
  for (auto& thread : threads_) thread.request_stop();
}

std::optional<k8s::Json> StatusPoller::latest(const k8s::Json& pod, bool ready, const k8s::Key& model) {
  const std::string uid = k8s::uid_of(pod);
  const auto now = clock_.now();
  std::unique_lock lock(mutex_);
  const auto [found, first] = answers_[model].try_emplace(uid);
  Answer& answer = found->second;
  answer.obsolete = false;
  const bool turned = ready && !answer.ready;
  if (turned) answer.json.reset(), answer.ready = true;
  if (answer.pending)
    answer.repoll |= turned;
  else if (first || turned || answer.requested_at + pause <= now)
    enqueue(answer, {uid, k8s::string_at(pod, "/status/podIP"), model});
  if (!turned) return answer.json;
  answer.awaited = true;
  answered_.wait_for(lock, patience, [&] { return !answer.pending; });  // a pending answer is not forgotten
  answer.awaited = false;
  return answer.json;
}

void StatusPoller::enqueue(Answer& answer, PollRequest request) {
  answer.pending = true;
  requests_.push_back(std::move(request));
  changed_.notify_one();
}

void StatusPoller::forget_others(const k8s::Key& model, const std::vector<k8s::ObjectPtr>& pods) {
  const std::lock_guard lock(mutex_);
  const auto known = answers_.find(model);
  if (known == answers_.end()) return;
  for (auto entry = known->second.begin(); entry != known->second.end();) {
    Answer& answer = entry->second;
    answer.obsolete =
        std::none_of(pods.begin(), pods.end(), [&](const auto& pod) { return k8s::uid_of(*pod) == entry->first; });
    entry = answer.obsolete && !answer.pending ? known->second.erase(entry) : std::next(entry);
  }
  if (known->second.empty()) answers_.erase(known);
}

void StatusPoller::drop(const PollRequest& request) {
  Answers& answers = answers_[request.model];
  answers.erase(request.uid);
  if (answers.empty()) answers_.erase(request.model);
}

void StatusPoller::poll_loop(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !requests_.empty(); })) {
    if (stop.stop_requested()) return;
    const PollRequest request = std::move(requests_.front());
    requests_.pop_front();
    answers_[request.model][request.uid].requested_at = clock_.now();
    lock.unlock();
    auto json = probe_.fetch_status(request.ip);
    lock.lock();
    Answer& answer = answers_[request.model][request.uid];  // there: a pending answer is not forgotten
    answer.pending = false;
    if (answer.obsolete) {
      drop(request);
      continue;
    }
    if (std::exchange(answer.repoll, false)) {  // what it said is of before it was ready
      enqueue(answer, request);
      continue;
    }
    const bool changed = answer.json != json && !answer.awaited;
    answer.json = std::move(json);
    answered_.notify_all();
    if (!changed) continue;
    lock.unlock();
    on_change_(request.model);
    lock.lock();
  }
}

}  // namespace pm::op
