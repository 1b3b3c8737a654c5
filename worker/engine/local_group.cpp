// See group.h: ranks as threads.
#include <ATen/Parallel.h>

#include <algorithm>
#include <exception>
#include <thread>

#include "worker/engine/device.h"
#include "worker/engine/group.h"
#include "worker/base/log.h"

namespace pm::engine {

namespace {

constexpr auto deadline = std::chrono::seconds(60);

class LocalGroup final : public Group {
 public:
  explicit LocalGroup(const GroupModel&);
  ~LocalGroup() override;
  Rank& leader() override { return *ranks_[0]; }

 private:
  void load(const GroupModel&, const std::vector<std::shared_ptr<comm::Communicator>>&, int threads_each);
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::thread> threads_;
};

void LocalGroup::load(const GroupModel& group, const std::vector<std::shared_ptr<comm::Communicator>>& communicators, int threads_each) {
  const size_t n = communicators.size();
  std::vector<std::exception_ptr> errors(n);
  const auto load_rank = [&](size_t r) {
    try {
      const at::Device device = device_of(group.device, static_cast<int>(r));
      const c10::DeviceGuard here(device);
      const int rank = static_cast<int>(r), ranks = static_cast<int>(n);
      limit_to_plan(*group.plan, rank, device, sharing(group.device, rank, ranks));
      ranks_[r] = with_memory_errors(device, "while rank " + std::to_string(r) + " was loaded", nullptr, [&] {
        return std::make_unique<Rank>(parallel::make_executor({group.checkpoint, group.model, group.plan, group.kv_blocks, communicators[r], {}, device, group.graphs}), threads_each);
      });
    } catch (...) {
      errors[r] = std::current_exception();
    }
  };
  ranks_.resize(n);
  std::vector<std::thread> loading;
  for (size_t r = 1; r < n; ++r) loading.emplace_back(load_rank, r);
  load_rank(0);
  for (auto& thread : loading) thread.join();
  for (const auto& error : errors) if (error) std::rethrow_exception(error);
}

LocalGroup::LocalGroup(const GroupModel& group) {
  const auto n = group.plan->ranks.size();
  const int threads_each = std::max(1, at::get_num_threads() / static_cast<int>(n));
  const auto communicators = comm::in_process(static_cast<int>(n), deadline);
  load(group, communicators, threads_each);
  kv_blocks_ = group.kv_blocks;
  Channels out(n), back(n);
  for (size_t r = 1; r < n; ++r) {
    out[r] = comm::in_process_channel(deadline);
    if (gives_results(*group.plan, static_cast<int>(r))) back[r] = comm::in_process_channel(deadline);
    threads_.emplace_back([this, r, communicator = communicators[r], channel = out[r], results = back[r]] {
      try {
        ranks_[r]->follow(*channel, results.get());
      } catch (const std::exception& error) {
        LOG(ERROR) << "rank " << r << " stops: " << error.what();
        communicator->abort(error.what());
        if (results) results->abort(error.what());
      }
    });
  }
  open_lanes(*group.plan, [&](int follower, comm::Way way) { return (way == comm::Way::Out ? out : back)[static_cast<size_t>(follower)]; }, deadline);
}

LocalGroup::~LocalGroup() {
  close_lanes();
  dismiss();
  for (auto& thread : threads_) thread.join();
}

}  // namespace

std::unique_ptr<Group> local_group(const GroupModel& group) { return std::make_unique<LocalGroup>(group); }

}  // namespace pm::engine
