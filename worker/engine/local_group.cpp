// See local_group.h.
#include "worker/engine/local_group.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <exception>

#include "worker/base/log.h"

namespace pm::engine {

namespace {
constexpr auto deadline = std::chrono::seconds(60);
}

LocalGroup::LocalGroup(const checkpoint::Checkpoint& checkpoint, const policy::Model& model, const Cuts& cuts, DType precision,
                       int64_t kv_blocks) {
  const auto n = static_cast<size_t>(cuts.ranks());
  const int threads_each = std::max(1, at::get_num_threads() / static_cast<int>(n));
  const auto communicators = comm::in_process(static_cast<int>(n), deadline);
  ranks_.resize(n);
  std::vector<std::exception_ptr> errors(n);
  const auto load = [&](size_t r) {
    try {
      ranks_[r] = std::make_unique<Rank>(parallel::tensor_executor({&checkpoint, &model, &cuts, precision, kv_blocks, communicators[r], {}}));
    } catch (...) {
      errors[r] = std::current_exception();
    }
  };
  std::vector<std::thread> loading;
  for (size_t r = 1; r < n; ++r) loading.emplace_back(load, r);
  load(0);
  for (auto& thread : loading) thread.join();
  for (const auto& error : errors) if (error) std::rethrow_exception(error);

  for (size_t r = 1; r < n; ++r) channels_.push_back(comm::in_process_channel(deadline));
  for (size_t r = 1; r < n; ++r) {
    threads_.emplace_back([this, r, threads_each, communicator = communicators[r], channel = channels_[r - 1]] {
      at::set_num_threads(threads_each);
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
  StepMessage last;
  last.stop = true;
  for (auto& channel : channels_) {
    try {
      channel->send(encode(last));
    } catch (const std::exception&) {  // the follower has ended already
    }
  }
  for (auto& thread : threads_) thread.join();
}

StepResult LocalGroup::run(const StepMessage& message) {
  const std::vector<uint8_t> bytes = encode(message);
  for (auto& channel : channels_) channel->send(bytes);
  return ranks_[0]->run(message);
}

}  // namespace pm::engine
