// SPDX-License-Identifier: Apache-2.0
#include "worker/server/generation/generation.h"

#include <condition_variable>
#include <map>
#include <mutex>

namespace pm::server {

struct Generation::Mailbox {
  std::mutex mutex;
  std::condition_variable arrived;
  std::vector<Arrival> arrivals;
  std::map<std::pair<size_t, int64_t>, size_t> positions;  ///< index in `arrivals` by request and sequence
  size_t weight = 0, max_weight = 0;
  bool overflowed = false;

  void put(size_t index, const engine::Event& event) {
    const auto now = std::chrono::steady_clock::now();
    std::lock_guard lock(mutex);
    for (const auto& token : event.tokens) weight += 1 + token.top_logprobs.size();
    overflowed = overflowed || weight > max_weight;
    const auto [position, inserted] = positions.try_emplace({index, event.sequence}, arrivals.size());
    if (inserted) {
      arrivals.push_back({index, event, now, now});
    } else {
      Arrival& arrival = arrivals[position->second];
      engine::Event& before = arrival.event;
      if (!event.tokens.empty()) arrival.last = now, ++arrival.events;
      before.tokens.insert(before.tokens.end(), event.tokens.begin(), event.tokens.end());
      before.finish = event.finish;
      before.reason = event.reason;
      before.ends_with_text = event.ends_with_text;
      before.constraint_failed = event.constraint_failed;
      before.score = event.score;
    }
    if (overflowed) arrivals[position->second].event.tokens.clear();  // they will not be read
  }
};

Generation::Generation(engine::Engine& engine, std::vector<engine::Request> requests, size_t max_pending)
    : engine_(engine), mailbox_(std::make_shared<Mailbox>()) {
  mailbox_->max_weight = max_pending;
  try {
    for (auto& request : requests) {
      const std::string id = request.id;
      const size_t index = ids_.size();
      running_.push_back(request.search.num_return_sequences);
      engine_.submit(std::move(request), [mailbox = mailbox_, index](const engine::Event& event) {
        mailbox->put(index, event);
        mailbox->arrived.notify_one();
      });
      ids_.push_back(id);
    }
  } catch (...) {
    for (const auto& id : ids_) engine_.cancel(id);
    throw;
  }
  open_ = ids_.size();
}

Generation::~Generation() {
  for (size_t i = 0; i < ids_.size(); ++i)
    if (running_[i] > 0) engine_.cancel(ids_[i]);
}

std::vector<Generation::Arrival> Generation::wait(std::chrono::milliseconds limit) {
  std::vector<Arrival> taken;
  {
    std::unique_lock lock(mailbox_->mutex);
    mailbox_->arrived.wait_for(lock, limit, [this] { return !mailbox_->arrivals.empty(); });
    taken.swap(mailbox_->arrivals);
    mailbox_->positions.clear();
    mailbox_->weight = 0;
  }
  std::erase_if(taken, [this](const Arrival& arrival) {
    if (running_[arrival.index] == 0) return true;  // the request was cancelled
    if (arrival.event.finish != engine::Finish::None && --running_[arrival.index] == 0) close(arrival.index);
    return false;
  });
  return taken;
}

void Generation::cancel(size_t index) {
  if (running_[index] == 0) return;
  engine_.cancel(ids_[index]);
  close(index);
}

void Generation::close(size_t index) {
  running_[index] = 0;
  --open_;
}

bool Generation::overflowed() const {
  std::lock_guard lock(mailbox_->mutex);
  return mailbox_->overflowed;
}

}  // namespace pm::server
