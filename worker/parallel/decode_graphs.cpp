// SPDX-License-Identifier: Apache-2.0
#include "worker/parallel/decode_graphs.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <stdexcept>

#include "worker/base/error.h"
#include "worker/ops/device_memory.h"
#include "worker/ops/staging.h"

#include "base/log.h"

namespace pm::parallel {

namespace {

/// Runs `body`. Returns why the device cannot do it: the first line of what PyTorch or a launch says. Returns nullopt
/// when it can. Errors of the group and of the program are thrown on.
std::optional<std::string> device_failure(const std::function<void()>& body) {
  std::string text;
  try {
    body();
    return std::nullopt;
  } catch (const Error&) {
    throw;
  } catch (const std::logic_error&) {
    throw;
  } catch (const c10::Error& error) {
    text = error.what_without_backtrace();
  } catch (const std::runtime_error& error) {  // of a kernel that was not launched
    text = error.what();
  }
  return text.substr(0, text.find('\n'));
}

}  // namespace

void GraphStatus::fail(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = reason;
}

bool GraphStatus::failed() const {
  const std::lock_guard lock(mutex_);
  return !failure_.empty();
}

GraphCounts GraphStatus::counts() const {
  const std::lock_guard lock(mutex_);
  return {.captured = captured, .replayed = replayed, .failure = failure_};
}

DecodeGraphs::DecodeGraphs(at::Device device, int64_t max_sequence_length, bool enabled, comm::Communicator& group,
                           GraphStatus& status)
    : device_(device),
      pool_(enabled ? ops::GraphPool::make(device) : nullptr),
      max_sequence_length_(max_sequence_length),
      group_(group),
      status_(status) {}

DecodeGraphs::~DecodeGraphs() {
  try {
    const c10::DeviceGuard here(device_);  // graphs and events are destroyed on the current device
    buckets_.clear();
  } catch (const std::exception&) {  // a failed device has nothing left to destroy
  }
}

int64_t DecodeGraphs::padded_batch_size(int64_t sequences) {
  int64_t bucket_size = 1;
  while (bucket_size < sequences && bucket_size < 8) bucket_size *= 2;
  return sequences <= bucket_size ? bucket_size : (sequences + 7) / 8 * 8;
}

int64_t DecodeGraphs::bucket_size(int64_t sequences) const {
  return pool_ && !disabled_ && sequences >= 1 && sequences <= max_captured_batch ? padded_batch_size(sequences) : 0;
}

/// Returns true when all ranks succeeded. It uses CPU tensors, which do not go over the device communicator.
bool DecodeGraphs::all_ranks_agree(bool mine) {
  if (group_.size() == 1) return mine;
  at::Tensor cannot = at::full({1}, mine ? 0.f : 1.f, at::kFloat);
  group_.all_reduce(cannot, comm::Op::Max);
  return cannot.item<float>() == 0;
}

/// Drops the graphs. `reason` is why this rank cannot capture; nullopt where another rank cannot. Throws c10::Error
/// when the device has failed: then no step runs on it any more.
void DecodeGraphs::disable(int64_t bucket_size, const std::optional<std::string>& reason) {
  const std::string text = device_.str() + ": no CUDA graph of a decode step for up to " + std::to_string(bucket_size) +
                           " sequences: " + reason.value_or("another rank of the group cannot capture it") +
                           "; decode steps are launched kernel by kernel";
  LOG(WARNING) << text;
  status_.fail(text);
  disabled_ = true;
  ops::current_stream(device_).synchronize();  // work in progress uses the graphs that are freed here
  buckets_.clear();
  status_.captured = 0;
  ops::release_unused(device_);
}

/// Captures the graphs that choose tokens. A rank that learns no tokens takes part in the operations of the group.
void DecodeGraphs::capture_tokens(Bucket& bucket, const DecodeStep& step) const {
  bool learns = true;
  const auto capture = [&](const std::function<at::Tensor()>& choose) {
    return pool_->capture([&] {
      const at::Tensor tokens = choose();
      learns = tokens.defined();
      if (learns) bucket.tokens.copy_(tokens, /*non_blocking=*/true);
    });
  };
  if (step.greedy) bucket.greedy = capture([&] { return step.greedy(bucket.hidden); });
  if (step.sample) bucket.sample = capture([&] { return step.sample(bucket.hidden, bucket.inputs->sampling()); });
  if (!learns) bucket.tokens.reset();
}

/// Runs the step eagerly and captures it. Returns the hidden states of the eager step, or an undefined tensor when
/// there is no memory for the bucket. Without a graph afterwards, graphs are disabled.
at::Tensor DecodeGraphs::capture(Bucket& bucket, int64_t bucket_size, const models::StepRows& rows,
                                 const DecodeStep& step) {
  std::optional<std::string> failure = "graphs are disabled on this rank";
  if (pool_) {
    failure = device_failure([&] {
      bucket.inputs.emplace(device_, bucket_size, max_sequence_length_, step.sample != nullptr);
      bucket.tokens = ops::pinned(bucket_size * static_cast<int64_t>(sizeof(int64_t))).view(at::kLong);
    });
  }
  at::Tensor eager;
  if (all_ranks_agree(!failure)) {
    DecodeInputs& inputs = *bucket.inputs;
    const auto layers = [&] {
      inputs.update_tables();
      return step.hidden(inputs.rows());
    };
    inputs.fill(rows, nullptr);
    pool_->run([&] {
      eager = layers();
      if (step.greedy) step.greedy(eager);
      if (step.sample) step.sample(eager, inputs.sampling());
    });
    failure = device_failure([&] {
      bucket.layers = pool_->capture([&] { bucket.hidden = layers(); });
      capture_tokens(bucket, step);
    });
    if (all_ranks_agree(!failure)) {
      ++status_.captured;
      LOG(INFO) << device_ << " captured the CUDA graph of a decode step for up to " << bucket_size << " sequences";
      return eager;
    }
  }
  disable(bucket_size, failure);
  return eager;
}

/// Replays the graphs of a step whose inputs are filled.
DecodeResult DecodeGraphs::replay(Bucket& bucket, int64_t sequences, const ops::SampleBatch* samples) {
  ops::Graph* choice = !samples ? nullptr : samples->is_greedy() ? bucket.greedy.get() : bucket.sample.get();
  bucket.layers->replay();
  if (choice) choice->replay();
  group_.graph_replayed("a captured step");
  ++status_.replayed;
  DecodeResult result{.hidden = bucket.hidden.narrow(0, 0, sequences), .has_tokens = choice != nullptr, .tokens = {}};
  if (choice && bucket.tokens.defined()) {
    chosen_.record(device_);
    chosen_.synchronize();
    result.tokens = bucket.tokens.narrow(0, 0, sequences);
  }
  return result;
}

DecodeResult DecodeGraphs::run(models::StepRows& rows, int64_t bucket_size, const DecodeStep& step,
                               const ops::SampleBatch* samples) {
  const auto& sequences = rows.batch.sequences.spans;
  const auto count = static_cast<int64_t>(sequences.size());
  const bool fits = count >= 1 && count <= bucket_size && bucket_size <= max_captured_batch && !rows.source &&
                    rows.cross.sequences.spans.empty() &&
                    std::all_of(sequences.begin(), sequences.end(), [&](const ops::SequenceSpan& one) {
                      return one.tokens == 1 && one.keys <= max_sequence_length_;
                    });
  if (!fits)
    throw std::logic_error("a step of " + std::to_string(count) + " sequences does not fit the CUDA graph for " +
                           std::to_string(bucket_size));
  if (!disabled_ && !buckets_[bucket_size].layers) {
    const at::Tensor eager = capture(buckets_[bucket_size], bucket_size, rows, step);
    if (disabled_ && eager.defined()) return {.hidden = eager.narrow(0, 0, count), .has_tokens = false, .tokens = {}};
  }
  if (disabled_) {
    rows = std::move(rows).on(device_);
    return {.hidden = step.hidden(rows), .has_tokens = false, .tokens = {}};
  }
  Bucket& bucket = buckets_.at(bucket_size);
  if (samples && !bucket.inputs->fits(*samples)) samples = nullptr;
  bucket.inputs->fill(rows, samples);
  return replay(bucket, count, samples);
}

}  // namespace pm::parallel
