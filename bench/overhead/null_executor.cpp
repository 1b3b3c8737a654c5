// SPDX-License-Identifier: Apache-2.0
#include "bench/overhead/null_executor.h"

#include <ATen/ATen.h>

#include "worker/base/error.h"

namespace pm::bench {
namespace {

class NullExecutor final : public parallel::Executor,
                           private parallel::GenerationExecutor,
                           private parallel::SamplingExecutor {
 public:
  explicit NullExecutor(int64_t vocabulary)
      : vocabulary_(vocabulary), comm_(comm::in_process(1, std::chrono::seconds(5))[0]) {}
  void check(const Arrays&) const override { throw Error(Reason::InvalidRequest, "this executor generates only"); }
  std::vector<Arrays> forward(std::span<const Arrays> inputs, const models::OutputSelection&) override {
    return std::vector<Arrays>(inputs.size());
  }
  parallel::GenerationExecutor* generation() override { return this; }
  parallel::SamplingExecutor* sampling() override { return this; }
  comm::Communicator& communicator() override { return *comm_; }
  int64_t weight_bytes() const override { return 0; }
  int64_t kv_bytes() const override { return 0; }

 private:
  void make_blocks(int64_t) override {}
  void copy_blocks(std::span<const int32_t>) override {}
  at::Tensor step(models::StepRows& rows) override { return at::empty({rows.batch.tokens.size(0), 1}); }
  parallel::Tokens greedy(const at::Tensor& hidden) override {
    at::Tensor ids = at::empty({hidden.size(0)}, at::kLong);
    int64_t* const to = ids.mutable_data_ptr<int64_t>();
    for (int64_t i = 0; i < ids.numel(); ++i) to[i] = 1 + next_++ % (vocabulary_ - 1);
    return ids;
  }
  at::Tensor logits(const at::Tensor& hidden) override { return at::zeros({hidden.size(0), vocabulary_}); }

  const int64_t vocabulary_;
  const std::shared_ptr<comm::Communicator> comm_;
  int64_t next_ = 0;
};

}  // namespace

std::unique_ptr<parallel::Executor> null_executor(int64_t vocabulary) {
  return std::make_unique<NullExecutor>(vocabulary);
}

}  // namespace pm::bench
