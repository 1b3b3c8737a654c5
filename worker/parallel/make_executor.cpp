// SPDX-License-Identifier: Apache-2.0
// Makes the executor of a strategy and checks its weights.
#include "worker/base/error.h"
#include "worker/parallel/executor.h"

namespace pm::parallel {

void check_weights(const Shard& shard, int64_t planned, int64_t held) {
  const int64_t tensors = is_quantized(shard.plan->precision) ? 2 : 1,
                slack = tensors * static_cast<int64_t>(shard.model->params().size()) * ops::Arena::alignment;
  if (held >= planned && held <= planned + slack) return;
  throw std::logic_error("rank " + std::to_string(shard.communicator->rank()) + " of " + shard.model->architecture +
                         " holds " + std::to_string(held) + " bytes of weights, but its plan predicts " +
                         std::to_string(planned));
}

std::unique_ptr<Executor> make_executor(const Shard& shard) {
  switch (shard.plan->strategy) {
    case Strategy::Tensor:
    case Strategy::Pipeline:
    case Strategy::Data:
      return tensor_pipeline(shard);  // a data-parallel rank is a whole replica of the model, sharded or not
    case Strategy::Sharded:
    case Strategy::Offload:
      return fully_sharded(shard);
  }
  throw Error(Reason::UnsupportedStrategy,
              std::string(name_of(shard.plan->strategy)) + " is not supported by this version");
}

}  // namespace pm::parallel
