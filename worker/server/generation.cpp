// See generation.h.
#include "worker/server/generation.h"

#include <condition_variable>
#include <mutex>

namespace pm::server {

struct Generation::Mailbox {
  std::mutex mutex;
  std::condition_variable arrived;
  std::vector<Arrival> arrivals;
};

Generation::Generation(engine::Engine& engine, std::vector<engine::Request> requests)
    : engine_(engine), mailbox_(std::make_shared<Mailbox>()) {
  try {
    for (auto& request : requests) {
      const std::string id = request.id;
      const size_t index = ids_.size();
      engine_.submit(std::move(request), [mailbox = mailbox_, index](const engine::Event& event) {
        const auto now = std::chrono::steady_clock::now();
        {
          std::lock_guard lock(mailbox->mutex);
          mailbox->arrivals.push_back({index, event, now});
        }
        mailbox->arrived.notify_one();
      });
      ids_.push_back(id);
    }
  } catch (...) {
    for (const auto& id : ids_) engine_.cancel(id);
    throw;
  }
  closed_.resize(ids_.size());
  open_ = ids_.size();
}

Generation::~Generation() {
  for (size_t i = 0; i < ids_.size(); ++i)
    if (!closed_[i]) engine_.cancel(ids_[i]);
}

std::vector<Generation::Arrival> Generation::wait(std::chrono::milliseconds limit) {
  std::vector<Arrival> taken;
  {
    std::unique_lock lock(mailbox_->mutex);
    mailbox_->arrived.wait_for(lock, limit, [this] { return !mailbox_->arrivals.empty(); });
    taken.swap(mailbox_->arrivals);
  }
  std::erase_if(taken, [this](const Arrival& arrival) {
    if (closed_[arrival.index]) return true;   // of a sequence that we cancelled
    if (arrival.event.finish != engine::Finish::None) close(arrival.index);
    return false;
  });
  return taken;
}

void Generation::cancel(size_t index) {
  if (closed_[index]) return;
  engine_.cancel(ids_[index]);
  close(index);
}

void Generation::close(size_t index) {
  closed_[index] = true;
  --open_;
}

}  // namespace pm::server
