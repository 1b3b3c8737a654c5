// See group.h: ranks as threads.
#include <ATen/Parallel.h>

#include <algorithm>
#include <exception>
#include <thread>

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
  const std::vector<std::shared_ptr<comm::Channel>>& channels() const override { return channels_; }

 private:
  void load(const GroupModel&, const std::vector<std::shared_ptr<comm::Communicator>>&, int threads_each);
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::shared_ptr<comm::Channel>> channels_;
  std::vector<std::thread> threads_;
};

void LocalGroup::load(const GroupModel& group, const std::vector<std::shared_ptr<comm::Communicator>>& communicators, int threads_each) {
  const size_t n = communicators.size();
  std::vector<std::exception_ptr> errors(n);
  const auto load_rank = [&](size_t r) {
    try {
      ranks_[r] = std::make_unique<Rank>(parallel::tensor_executor(
          {group.checkpoint, group.model, group.cuts, group.precision, group.kv_blocks, communicators[r], {}}), threads_each);
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
  const auto n = static_cast<size_t>(group.cuts->ranks());
  const int threads_each = std::max(1, at::get_num_threads() / static_cast<int>(n));
  const auto communicators = comm::in_process(static_cast<int>(n), deadline);
  load(group, communicators, threads_each);
  for (size_t r = 1; r < n; ++r) channels_.push_back(comm::in_process_channel(deadline));
  for (size_t r = 1; r < n; ++r) {
    threads_.emplace_back([this, r, communicator = communicators[r], channel = channels_[r - 1]] {
      try {
        ranks_[r]->follow(*channel);
      } catch (const std::exception& error) {
        LOG(ERROR) << "rank " << r << " stops: " << error.what();
        communicator->abort(error.what());
      }
    });
  }
}

LocalGroup::~LocalGroup() {
  dismiss();
  for (auto& thread : threads_) thread.join();
}

}  // namespace

std::unique_ptr<Group> local_group(const GroupModel& group) { return std::make_unique<LocalGroup>(group); }

}  // namespace pm::engine
