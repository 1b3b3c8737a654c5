// SPDX-License-Identifier: Apache-2.0
#include "worker/parallel/weight_prefetcher.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <glog/logging.h>

#include <algorithm>
#include <stdexcept>

#include "planner/weight_shards.h"
#include "worker/ops/staging.h"

namespace pm::parallel {

namespace {

struct Leaving {};  // thrown when the rank leaves in the middle of a step

std::vector<int64_t> values_of(const at::Tensor& ids) {
  return {ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + ids.numel()};
}

}  // namespace

WeightPrefetcher::WeightPrefetcher(GatherUnits& units, layers::Loader& loader, int64_t buffer,
                                   std::shared_ptr<comm::Communicator> world)
    : units_(units), loader_(loader), world_(std::move(world)), device_(loader.device()) {
  if (!device_.is_cpu()) stream_ = ops::stream_from_pool(device_);
  for (Buffer& one : buffers_) {
    one.bytes = loader.allocate({buffer}, at::kByte);
    one.released.record(device_);  // its memory may have held another tensor
  }
  thread_ = std::thread([this] { run(); });
}

WeightPrefetcher::~WeightPrefetcher() {
  bool amid = false;
  {
    std::lock_guard lock(mutex_);
    leaving_ = true;
    amid = forwards_.has_value();
  }
  changed_.notify_all();
  if (amid && world_->size() > 1)
    world_->abort("rank " + std::to_string(world_->rank()) + " has left in the middle of a step");
  thread_.join();
  try {
    if (stream_) stream_->synchronize();  // the buffers are freed after this
  } catch (const std::exception&) {       // a failed device copies nothing any more
  }
}

void WeightPrefetcher::begin(std::vector<StageMask> forwards) {
  std::unique_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  forwards_ = std::move(forwards);
  schedule_ready_ = false;
  completed_ops_ = 0;
  position_ = -1;
  changed_.notify_all();
  changed_.wait(lock, [&] { return schedule_ready_ || failure_; });
  if (failure_) std::rethrow_exception(failure_);
}

void WeightPrefetcher::finish() {
  std::unique_lock lock(mutex_);
  release_buffer(position_);
  position_ = static_cast<int64_t>(schedule_.size());
  changed_.notify_all();
  changed_.wait(lock, [&] { return !forwards_ || failure_; });
  if (failure_) std::rethrow_exception(failure_);
}

void WeightPrefetcher::abandon() noexcept {
  if (world_->size() > 1) return;
  try {
    finish();
  } catch (const std::exception& error) {  // the next begin() throws what ended the thread
    LOG(WARNING) << "a step was left and its weights could not be released: " << error.what();
  }
}

/// Releases the buffer of an operation once the layers have enqueued all work that uses it.
void WeightPrefetcher::release_buffer(int64_t op) {
  const int buffer = op >= 0 && op < static_cast<int64_t>(schedule_.size()) ? buffer_of_[static_cast<size_t>(op)] : -1;
  if (buffer >= 0) buffers_[buffer].released.record(device_);
}

/// Advances to the next such operation, or stays where that is the current one; returns when it is done.
void WeightPrefetcher::advance_to(const GatherOp& op, at::Tensor ids) {
  std::unique_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  const auto at = [&](int64_t place) { return place >= 0 && schedule_[static_cast<size_t>(place)] == op; };
  if (!forwards_ || !schedule_ready_) throw std::logic_error("a weight is used outside of a step");
  if (!at(position_) || op.look_up) {
    int64_t next = position_ + 1;
    while (next < static_cast<int64_t>(schedule_.size()) && !at(next)) ++next;
    if (next == static_cast<int64_t>(schedule_.size())) {
      throw std::logic_error((op.look_up ? "table " : "unit ") + std::to_string(op.number) +
                             " is not in the gather schedule after operation " + std::to_string(position_) + " of " +
                             std::to_string(schedule_.size()));
    }
    release_buffer(position_);
    position_ = next;
    ids_ = std::move(ids);
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return completed_ops_ > position_ || failure_; });
  if (failure_) std::rethrow_exception(failure_);
}

void WeightPrefetcher::tiles(int number, const std::function<void(int64_t first, const layers::Weight& rows)>& use) {
  const ShardedWeight& weight = units_.weight(number);
  for (const int unit : weight.units) {
    advance_to({false, unit});
    const GatherUnit& where = units_.unit(unit);
    const int64_t begin = std::max(where.begin, weight.offset), end = std::min(where.end, weight.offset + weight.bytes);
    const Buffer& buffer = buffers_[buffer_of_[static_cast<size_t>(position_)]];
    buffer.ready.wait(device_);
    use((begin - weight.offset) / weight.row_bytes,
        units_.view_rows(number, buffer.bytes.narrow(0, begin - where.begin, end - begin)));
  }
}

at::Tensor WeightPrefetcher::look_up(int number, const at::Tensor& ids) {
  advance_to({true, number}, ids.contiguous().cpu());
  rows_ready_.wait(device_);
  if (stream_) ops::record_stream(rows_, ops::current_stream(device_));
  return std::move(rows_);
}

void WeightPrefetcher::run() {
  const c10::InferenceMode inference_mode;
  const c10::OptionalStreamGuard beside(stream_);
  try {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return leaving_ || forwards_; });
        if (leaving_) return;
      }
      run_schedule();
      std::lock_guard lock(mutex_);
      forwards_.reset();
      changed_.notify_all();
    }
  } catch (const Leaving&) {
  } catch (...) {
    std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    changed_.notify_all();
  }
}

/// Runs the operations of one step. `schedule_`, `buffer_of_` and `forwards_` do not change meanwhile.
void WeightPrefetcher::run_schedule() {
  std::vector<GatherOp> schedule = agree_on_schedule(*forwards_);
  std::vector<int> buffers;
  int next = 0;
  for (const GatherOp& op : schedule) buffers.push_back(op.look_up ? -1 : std::exchange(next, 1 - next));
  {
    std::lock_guard lock(mutex_);
    schedule_ = std::move(schedule);
    buffer_of_ = std::move(buffers);
    schedule_ready_ = true;
  }
  changed_.notify_all();
  for (int64_t number = 0; number < static_cast<int64_t>(schedule_.size()); ++number) {
    const GatherOp& op = schedule_[static_cast<size_t>(number)];
    const bool wanted = wait_for_buffer(number);
    if (op.look_up) {
      at::Tensor ids;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return leaving_ || position_ >= number; });
        if (leaving_) throw Leaving();
        if (position_ == number) ids = ids_;
      }
      rows_ = look_up_rows(op, ids.defined() ? ids : at::empty({0}, at::kLong));
      rows_ready_.record(device_);
    } else if (wanted || world_->size() > 1) {
      fetch(op, buffers_[buffer_of_[static_cast<size_t>(number)]]);
    }
    std::lock_guard lock(mutex_);
    completed_ops_ = number + 1;
    changed_.notify_all();
  }
  std::unique_lock lock(mutex_);  // the layers may still use the last buffers
  changed_.wait(lock, [&] { return leaving_ || position_ == static_cast<int64_t>(schedule_.size()); });
  if (leaving_) throw Leaving();
}

/// Agrees with all ranks on one schedule for the stages of all of them.
std::vector<GatherOp> WeightPrefetcher::agree_on_schedule(const std::vector<StageMask>& forwards) {
  const auto count = static_cast<int64_t>(forwards.size());
  std::vector<StageMask> masks = forwards;
  if (world_->size() > 1) {
    at::Tensor mine = at::empty({1, count}, at::kLong);
    for (int64_t i = 0; i < count; ++i) mine[0][i] = static_cast<int64_t>(forwards[static_cast<size_t>(i)]);
    const std::vector<int64_t> all = all_gather_ids(mine, std::vector<int64_t>(static_cast<size_t>(world_->size()), 1));
    for (size_t i = 0; i < all.size(); ++i) {
      StageMask& mask = masks[i % masks.size()];
      mask = united(mask, static_cast<StageMask>(all[i]));
    }
  }
  std::vector<GatherOp> schedule;
  for (const StageMask one : masks) {
    const std::vector<GatherOp> gather_ops = units_.schedule(one);
    schedule.insert(schedule.end(), gather_ops.begin(), gather_ops.end());
  }
  return schedule;
}

/// Waits until the buffer of the operation has been released. Returns true when the layers have not passed it yet.
bool WeightPrefetcher::wait_for_buffer(int64_t op) {
  int64_t before = op - 1;
  const int buffer = buffer_of_[static_cast<size_t>(op)];
  while (before >= 0 && (buffer < 0 || buffer_of_[static_cast<size_t>(before)] != buffer)) --before;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return leaving_ || before < 0 || position_ > before; });
  if (leaving_) throw Leaving();
  return position_ <= op;
}

void WeightPrefetcher::fetch(const GatherOp& op, Buffer& buffer) {
  const GatherUnit& unit = units_.unit(op.number);
  const FlatParam& run = units_.flat_param(unit.flat_param);
  buffer.released.wait(device_);
  at::Tensor together = buffer.bytes.narrow(0, 0, unit.end - unit.begin);
  std::vector<int64_t> sizes;
  for (int rank = 0; rank < world_->size(); ++rank) sizes.push_back(units_.part_of(op.number, rank).size());
  const Range part = units_.part_of(op.number, world_->rank());
  const at::Tensor place = together.narrow(0, part.begin, part.size());
  at::Tensor mine = place;
  if (units_.in_files()) {
    buffer.sent.synchronize();
    if (stream_ && (!buffer.read.defined() || buffer.read.numel() < part.size()))
      buffer.read = ops::pinned(part.size());
    const at::Tensor read = stream_ ? buffer.read.narrow(0, 0, part.size()) : place;
    units_.read(loader_, unit.flat_param, unit.begin + part.begin, unit.begin + part.end,
                static_cast<std::byte*>(read.mutable_data_ptr()));
    if (stream_) place.copy_(read, /*non_blocking=*/true);
    buffer.sent.record(device_);
  } else {
    const int64_t row = run.table ? units_.weight(run.weights[0]).row_bytes : 1;
    mine = run.local_shard.narrow(0, part.size() > 0 ? unit.begin + part.begin - run.shard_range.begin * row : 0,
                                  part.size());
    if (mine.device() != device_) mine = place.copy_(mine, /*non_blocking=*/true);
  }
  if (world_->size() > 1 || mine.data_ptr() != place.data_ptr()) world_->all_gatherv(mine, sizes, together);
  buffer.ready.record(device_);
}

at::Tensor WeightPrefetcher::look_up_rows(const GatherOp& op, const at::Tensor& ids) {
  if (!units_.in_files()) return exchange_rows(op.number, ids);
  const ShardedWeight& table = units_.weight(op.number);
  const at::Tensor rows = at::empty({ids.size(0), table.row_bytes}, at::kByte);
  const std::vector<int64_t> wanted = values_of(ids);
  for (size_t i = 0; i < wanted.size();) {  // consecutive rows, as positions are, are read at once
    size_t end = i + 1;
    while (end < wanted.size() && wanted[end] == wanted[end - 1] + 1) ++end;
    units_.read_rows(loader_, op.number, {wanted[i], wanted[end - 1] + 1},
                     static_cast<std::byte*>(rows.mutable_data_ptr()) + static_cast<int64_t>(i) * table.row_bytes);
    i = end;
  }
  return units_.view_rows(op.number, rows.to(device_)).value();
}

/// All-gathers integers. Ranks exchange tensors of their devices.
std::vector<int64_t> WeightPrefetcher::all_gather_ids(const at::Tensor& mine, const std::vector<int64_t>& counts) {
  return values_of(world_->all_gatherv(mine.to(device_), counts).cpu());
}

/// Looks up the ids of all ranks in the rows of this rank and exchanges the rows found, so that the table itself is not
/// transferred.
at::Tensor WeightPrefetcher::exchange_rows(int number, const at::Tensor& ids) {
  const ShardedWeight& table = units_.weight(number);
  const FlatParam& run = units_.flat_param(table.flat_param);
  const int ranks = world_->size(), me = world_->rank();
  const at::Tensor shard = units_.local_rows(number);
  const std::vector<int64_t> ones(static_cast<size_t>(ranks), 1);
  const std::vector<int64_t> counts = all_gather_ids(at::full({1}, ids.size(0), at::kLong), ones);
  const std::vector<int64_t> all = all_gather_ids(ids, counts);
  std::vector<int64_t> found(static_cast<size_t>(ranks), 0), mine,
      place;  // rows that each rank sends; those of this rank; the index of each id among the rows of its rank
  std::vector<size_t> owner;
  for (const int64_t id : all) {
    int rank = 0;
    while (rank + 1 < ranks && table_shard(table.shape[0], rank, ranks).end <= id) ++rank;
    owner.push_back(static_cast<size_t>(rank));
    place.push_back(found[owner.back()]++);
    if (rank == me) mine.push_back(id - run.shard_range.begin);
  }
  const at::Tensor sent = at::index_select(shard, 0, at::tensor(mine, at::kLong).to(shard.device())).to(device_),
                   rows = world_->all_gatherv(sent, found);
  int64_t before = 0, first = 0;
  for (int rank = 0; rank < me; ++rank) before += counts[static_cast<size_t>(rank)];
  std::vector<int64_t> wanted, begins;
  for (const int64_t count : found) begins.push_back(std::exchange(first, first + count));
  for (int64_t i = before; i < before + ids.size(0); ++i)
    wanted.push_back(begins[owner[static_cast<size_t>(i)]] + place[static_cast<size_t>(i)]);
  return units_.view_rows(number, at::index_select(rows, 0, at::tensor(wanted, at::kLong).to(device_))).value();
}

}  // namespace pm::parallel
