// See output.h.
#include "worker/engine/output.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "worker/engine/philox.h"
#include "worker/engine/wire.h"

namespace pm::engine {

namespace {

Chosen chosen_from(std::span<const float> scores, const Choosing& how) {
  Chosen chosen;
  if (how.beams) {
    chosen.candidates = continuations(scores, *how.sampling, how.history, *how.beams);
    return chosen;
  }
  for (int64_t draw = 0; draw < how.draws; ++draw) {
    const double u = uniform(how.sampling->seed, static_cast<uint64_t>(how.sequence + draw), how.history.tokens.size());
    const auto id = static_cast<int32_t>(choose(scores, *how.sampling, how.history, u));
    chosen.tokens.push_back(how.logprobs >= 0 ? described(scores, id, how.logprobs) : Token{id, 0, {}});
  }
  return chosen;
}

template <typename T>
std::vector<T> values_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<T>(), flat.const_data_ptr<T>() + flat.numel()};
}

/// A tensor that owns `values`.
template <typename T>
at::Tensor tensor_of(std::vector<T> values, std::vector<int64_t> shape, at::ScalarType type) {
  const auto kept = std::make_shared<std::vector<T>>(std::move(values));
  return at::from_blob(kept->data(), shape, [kept](void*) {}, at::TensorOptions(type));
}

}  // namespace

std::vector<uint8_t> encode(const StepOutput& output) {
  Writer write;
  write(values_of<int64_t>(output.best));
  write(values_of<int64_t>(output.drawn));
  write(output.scores.defined() ? output.scores.size(1) : int64_t{0});
  write(values_of<float>(output.scores));
  write(output.outputs);
  return std::move(write.out);
}

StepOutput decode_output(std::span<const uint8_t> bytes) {
  Reader read(bytes);
  std::vector<int64_t> best, drawn;
  std::vector<float> scores;
  int64_t columns = 0;
  StepOutput output;
  read(best), read(drawn), read(columns), read(scores), read(output.outputs);
  const auto rows = static_cast<int64_t>(best.size()), draws = static_cast<int64_t>(drawn.size()), all = static_cast<int64_t>(scores.size());
  if (!read.empty() || columns < 0 || (columns == 0 ? all > 0 : all % columns != 0)) throw std::invalid_argument("step output: bytes that no rank has written");
  if (rows > 0) output.best = tensor_of(std::move(best), {rows}, at::kLong);
  if (draws > 0) output.drawn = tensor_of(std::move(drawn), {draws}, at::kLong);
  if (columns > 0) output.scores = tensor_of(std::move(scores), {all / columns, columns}, at::kFloat);
  return output;
}

std::vector<Chosen> choose(const StepMessage& message, std::span<const Choosing> choosing, const StepOutput& output) {
  const auto wanted = [&](Want want) { return static_cast<size_t>(std::count_if(message.entries.begin(), message.entries.end(), [&](const StepEntry& entry) { return entry.want == want; })); };
  const auto rows = [](const at::Tensor& tensor) { return tensor.defined() ? static_cast<size_t>(tensor.size(0)) : 0; };
  size_t draws = 0;
  for (const StepEntry& entry : message.entries) draws += entry.want == Want::Drawn ? static_cast<size_t>(entry.drawing.count) : 0;
  if (choosing.size() != wanted(Want::Scores) || rows(output.scores) != choosing.size() || rows(output.best) != wanted(Want::Best) || rows(output.drawn) != draws) {
    throw std::logic_error("step " + std::to_string(message.step) + ": " + std::to_string(wanted(Want::Best)) + " entries want the best, " + std::to_string(wanted(Want::Scores)) + " scores, and " +
                           std::to_string(draws) + " tokens are drawn; there are " + std::to_string(rows(output.best)) + ", " + std::to_string(rows(output.scores)) + " with " +
                           std::to_string(choosing.size()) + " ways to choose, and " + std::to_string(rows(output.drawn)));
  }
  std::vector<Chosen> result;
  const int64_t* id = output.best.defined() ? output.best.const_data_ptr<int64_t>() : nullptr;
  const int64_t* drawn = output.drawn.defined() ? output.drawn.const_data_ptr<int64_t>() : nullptr;
  size_t next = 0;
  for (const StepEntry& entry : message.entries) {
    if (entry.want == Want::Best) result.push_back({{Token{static_cast<int32_t>(*id++), 0, {}}}, {}});
    if (entry.want == Want::Drawn) {
      result.emplace_back();
      for (int64_t i = 0; i < entry.drawing.count; ++i) result.back().tokens.push_back({static_cast<int32_t>(*drawn++), 0, {}});
    }
    if (entry.want != Want::Scores) continue;
    const auto columns = static_cast<size_t>(output.scores.size(1));
    result.push_back(chosen_from({output.scores.const_data_ptr<float>() + next * columns, columns}, choosing[next]));
    ++next;
  }
  return result;
}

}  // namespace pm::engine
