// See decode_graphs.h.
#include "worker/parallel/decode_graphs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "worker/ops/packed.h"
#include "worker/base/log.h"

namespace pm::parallel {

namespace {

constexpr int64_t most_places = 64, integer = sizeof(int64_t);
constexpr int64_t vectors = 3;   // tokens, positions, slots

/// 1, 2, 4, 8, then multiples of 8.
int64_t places_for(int64_t rows) {
  int64_t places = 1;
  while (places < rows && places < 8) places *= 2;
  return rows <= places ? places : (rows + 7) / 8 * 8;
}

}  // namespace

DecodeGraphs::DecodeGraphs(at::Device device, int64_t longest) : device_(device), record_(ops::recorder(device.type())), longest_(longest), table_stride_(ops::blocks_of_keys(longest)) {}

bool DecodeGraphs::fits(const models::StepRows& rows) const {
  const auto& sequences = rows.batch.sequences;
  return record_ && !full_ && !rows.source && rows.cross.sequences.empty() && !sequences.empty() && static_cast<int64_t>(sequences.size()) <= most_places &&
         std::all_of(sequences.begin(), sequences.end(), [&](const ops::SequenceSpan& one) { return one.tokens == 1 && one.keys <= longest_; });
}

DecodeGraphs::Bucket& DecodeGraphs::bucket(int64_t places) {
  const auto [found, is_new] = buckets_.try_emplace(places);
  Bucket& bucket = found->second;
  if (!is_new) return bucket;
  const int64_t bytes = vectors * places * integer + ops::packed_size(places, table_stride_) * static_cast<int64_t>(sizeof(int32_t));
  bucket.host = at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(device_.is_cuda()));
  bucket.device = at::empty({bytes}, at::TensorOptions(at::kByte).device(device_));
  const auto vector = [&](int64_t which) { return bucket.device.narrow(0, which * places * integer, places * integer).view(at::kLong); };
  layers::Batch& batch = bucket.rows.batch;
  batch.tokens = vector(0);
  batch.positions = vector(1);
  batch.slots = vector(2);
  for (int64_t i = 0; i < places; ++i) batch.sequences.push_back({.first = i, .tokens = 1, .context = 0, .keys = 1, .key_row = 0, .blocks = {}});
  batch.sequences.longest = longest_;
  batch.sequences.on_device = bucket.device.narrow(0, vectors * places * integer, bytes - vectors * places * integer).view(at::kInt);
  return bucket;
}

/// Places without a row are tokens 0 whose keys and values go nowhere.
void DecodeGraphs::fill(Bucket& bucket, int64_t places, const models::StepRows& rows) const {
  const layers::Batch& batch = rows.batch;
  auto* to = reinterpret_cast<int64_t*>(bucket.host.mutable_data_ptr<uint8_t>());
  int64_t usual[vectors] = {0, 0, -1};
  const at::Tensor* given[vectors] = {&batch.tokens, &batch.positions, &batch.slots};
  for (int64_t which = 0; which < vectors; ++which) {
    const at::Tensor values = given[which]->contiguous();
    int64_t* end = std::copy_n(values.const_data_ptr<int64_t>(), values.numel(), to + which * places);
    std::fill(end, to + (which + 1) * places, usual[which]);
  }
  ops::pack(batch.sequences, places, table_stride_, reinterpret_cast<int32_t*>(to + vectors * places));
  bucket.device.copy_(bucket.host, /*non_blocking=*/true);
}

at::Tensor DecodeGraphs::run(const models::StepRows& rows, const std::function<at::Tensor(models::StepRows&)>& step) {
  const auto count = static_cast<int64_t>(rows.batch.sequences.size()), places = places_for(count);
  Bucket& here = bucket(places);
  fill(here, places, rows);
  if (!here.graph) {
    const at::Tensor plain = step(here.rows);
    try {
      here.graph = record_(device_, [&] { here.hidden = step(here.rows); });
      LOG(INFO) << device_ << " recorded the launches of a step for up to " << places << " sequences";
    } catch (const c10::OutOfMemoryError&) {
      LOG(WARNING) << device_ << " has no memory for the recorded launches of " << places << " sequences: from here on steps are launched kernel by kernel";
      full_ = true;
      return plain.narrow(0, 0, count);
    }
  }
  here.graph->replay();
  return here.hidden.narrow(0, 0, count);
}

}  // namespace pm::parallel
