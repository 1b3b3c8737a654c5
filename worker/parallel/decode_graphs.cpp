// See decode_graphs.h.
#include "worker/parallel/decode_graphs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "worker/ops/device_memory.h"
#include "worker/ops/packed.h"
#include "worker/base/log.h"

namespace pm::parallel {

namespace {

constexpr int64_t integer = sizeof(int64_t);
constexpr int64_t vectors = 3;   // tokens, positions, slots

}  // namespace

DecodeGraphs::DecodeGraphs(at::Device device, int64_t longest, bool wanted, comm::Communicator& group, std::atomic<int64_t>& recorded, std::atomic<int64_t>& replayed)
    : device_(device), record_(wanted ? ops::recorder(device.type()) : nullptr), longest_(longest), table_stride_(ops::blocks_of_keys(longest)), group_(group), recorded_(recorded), replayed_(replayed) {}

int64_t DecodeGraphs::places_for(int64_t sequences) {
  int64_t places = 1;
  while (places < sequences && places < 8) places *= 2;
  return sequences <= places ? places : (sequences + 7) / 8 * 8;
}

int64_t DecodeGraphs::places(int64_t sequences) const { return record_ && !given_up_ && sequences >= 1 && sequences <= most_places ? places_for(sequences) : 0; }

void DecodeGraphs::make(Bucket& bucket, int64_t places) const {
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
}

/// Places without a row are tokens 0 whose keys and values go nowhere.
void DecodeGraphs::fill(Bucket& bucket, int64_t places, const models::StepRows& rows) const {
  const layers::Batch& batch = rows.batch;
  bucket.copied.synchronize();   // a rank that sees no results may be ahead of its device
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
  bucket.copied.record(device_);
}

/// Whether there was memory for it.
bool DecodeGraphs::with_memory(const std::function<void()>& body) const {
  try {
    body();
    return true;
  } catch (const c10::OutOfMemoryError&) {
    return false;
  }
}

/// Over tensors of the processor, which go another way than those of devices.
bool DecodeGraphs::all_ranks(bool mine) {
  if (group_.size() == 1) return mine;
  at::Tensor cannot = at::full({1}, mine ? 0.f : 1.f, at::kFloat);
  group_.all_reduce(cannot, comm::Op::Max);
  return cannot.item<float>() == 0;
}

void DecodeGraphs::give_up(int64_t places) {
  LOG(WARNING) << device_ << ": a rank of the group cannot record the launches of " << places << " sequences, for want of memory or of the wish: from here on steps are launched kernel by kernel";
  given_up_ = true;
  ops::current_stream(device_).synchronize();   // what is still under way uses what goes now
  buckets_.clear();
  recorded_ = 0;
  ops::release_unused(device_);
}

at::Tensor DecodeGraphs::run(models::StepRows& rows, int64_t places, const std::function<at::Tensor(models::StepRows&)>& step) {
  const auto& sequences = rows.batch.sequences;
  const auto count = static_cast<int64_t>(sequences.size());
  const bool fits = count >= 1 && count <= places && places <= most_places && !rows.source && rows.cross.sequences.empty() &&
                    std::all_of(sequences.begin(), sequences.end(), [&](const ops::SequenceSpan& one) { return one.tokens == 1 && one.keys <= longest_; });
  if (!fits) throw std::logic_error("a step of " + std::to_string(count) + " sequences is no recorded step of " + std::to_string(places) + " places");
  const auto launched = [&] {
    rows = std::move(rows).on(device_);
    return step(rows);
  };
  if (given_up_) return launched();
  Bucket& here = buckets_[places];
  if (!here.graph) {
    if (!all_ranks(record_ && with_memory([&] { make(here, places); }))) {
      give_up(places);
      return launched();
    }
    fill(here, places, rows);
    const at::Tensor plain = step(here.rows);
    const bool mine = with_memory([&] { here.graph = record_(device_, [&] { here.hidden = step(here.rows); }); });
    if (!all_ranks(mine)) {
      give_up(places);
      return plain.narrow(0, 0, count);
    }
    ++recorded_;
    LOG(INFO) << device_ << " recorded the launches of a step for up to " << places << " sequences";
  } else {
    fill(here, places, rows);
  }
  here.graph->replay();
  group_.repeated("a recorded step");
  ++replayed_;
  return here.hidden.narrow(0, 0, count);
}

}  // namespace pm::parallel
