// See fetcher.h.
#include "worker/parallel/fetcher.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <stdexcept>

#include "planner/spread.h"
#include "worker/ops/staging.h"

namespace pm::parallel {

namespace {

struct Left {};   // the rank leaves in the middle of a step

std::vector<int64_t> values_of(const at::Tensor& ids) { return {ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + ids.numel()}; }

}  // namespace

Fetcher::Fetcher(Units& units, layers::Loader& loader, int64_t buffer, std::shared_ptr<comm::Communicator> world)
    : units_(units), loader_(loader), world_(std::move(world)), device_(loader.device()) {
  if (!device_.is_cpu()) stream_ = ops::another_stream(device_);
  for (Buffer& one : buffers_) {
    one.bytes = loader.allocate({buffer}, at::kByte);
    one.used.record(device_);   // its memory may have been another tensor's
  }
  thread_ = std::thread([this] { run(); });
}

Fetcher::~Fetcher() {
  bool amid = false;
  {
    std::lock_guard lock(mutex_);
    leaving_ = true;
    amid = passes_.has_value();
  }
  moved_.notify_all();
  if (amid && world_->size() > 1) world_->abort("rank " + std::to_string(world_->rank()) + " has left in the middle of a step");
  thread_.join();
  try {
    if (stream_) stream_->synchronize();   // before its buffers go
  } catch (const std::exception&) {   // a device that has failed copies nothing any more
  }
}

void Fetcher::begin(std::vector<Places> passes) {
  std::unique_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  passes_ = std::move(passes);
  on_route_ = false;
  made_ = 0;
  here_ = -1;
  moved_.notify_all();
  moved_.wait(lock, [&] { return on_route_ || failure_; });
  if (failure_) std::rethrow_exception(failure_);
}

void Fetcher::finish() {
  std::unique_lock lock(mutex_);
  leave(here_);
  here_ = static_cast<int64_t>(route_.size());
  moved_.notify_all();
  moved_.wait(lock, [&] { return !passes_ || failure_; });
  if (failure_) std::rethrow_exception(failure_);
}

/// The layers have asked for all that they do with what this stop brought.
void Fetcher::leave(int64_t stop) {
  const int buffer = stop >= 0 && stop < static_cast<int64_t>(route_.size()) ? buffer_of_[static_cast<size_t>(stop)] : -1;
  if (buffer >= 0) buffers_[buffer].used.record(device_);
}

/// Goes on to the next such stop, or stays where that is the one; returns when it has been made.
void Fetcher::go(const Stop& stop, at::Tensor ids) {
  std::unique_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  const auto at = [&](int64_t place) { return place >= 0 && route_[static_cast<size_t>(place)] == stop; };
  if (!passes_ || !on_route_) throw std::logic_error("a weight is used outside of a step");
  if (!at(here_) || stop.look_up) {
    int64_t next = here_ + 1;
    while (next < static_cast<int64_t>(route_.size()) && !at(next)) ++next;
    if (next == static_cast<int64_t>(route_.size())) {
      throw std::logic_error((stop.look_up ? "table " : "unit ") + std::to_string(stop.number) + " is not on the way after stop " + std::to_string(here_) + " of " + std::to_string(route_.size()));
    }
    leave(here_);
    here_ = next;
    ids_ = std::move(ids);
    moved_.notify_all();
  }
  moved_.wait(lock, [&] { return made_ > here_ || failure_; });
  if (failure_) std::rethrow_exception(failure_);
}

void Fetcher::tiles(int number, const std::function<void(int64_t first, const layers::Weight& rows)>& use) {
  const Kept& weight = units_.weight(number);
  for (const int unit : weight.units) {
    go({false, unit});
    const KeptUnit& where = units_.unit(unit);
    const int64_t begin = std::max(where.begin, weight.offset), end = std::min(where.end, weight.offset + weight.bytes);
    const Buffer& buffer = buffers_[buffer_of_[static_cast<size_t>(here_)]];
    buffer.came.wait(device_);
    use((begin - weight.offset) / weight.row_bytes, units_.rows_of(number, buffer.bytes.narrow(0, begin - where.begin, end - begin)));
  }
}

at::Tensor Fetcher::look_up(int number, const at::Tensor& ids) {
  go({true, number}, ids.contiguous().cpu());
  rows_came_.wait(device_);
  if (stream_) ops::used_on(rows_, ops::current_stream(device_));
  return std::move(rows_);
}

void Fetcher::run() {
  const c10::InferenceMode nothing_is_learned;
  const c10::OptionalStreamGuard beside(stream_);
  try {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        moved_.wait(lock, [&] { return leaving_ || passes_; });
        if (leaving_) return;
      }
      make_stops();
      std::lock_guard lock(mutex_);
      passes_.reset();
      moved_.notify_all();
    }
  } catch (const Left&) {
  } catch (...) {
    std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    moved_.notify_all();
  }
}

/// The stops of one step. `route_`, `buffer_of_` and `passes_` do not change while they are made.
void Fetcher::make_stops() {
  std::vector<Stop> route = agreed(*passes_);
  std::vector<int> buffers;
  int next = 0;
  for (const Stop& stop : route) buffers.push_back(stop.look_up ? -1 : std::exchange(next, 1 - next));
  {
    std::lock_guard lock(mutex_);
    route_ = std::move(route);
    buffer_of_ = std::move(buffers);
    on_route_ = true;
  }
  moved_.notify_all();
  for (int64_t number = 0; number < static_cast<int64_t>(route_.size()); ++number) {
    const Stop& stop = route_[static_cast<size_t>(number)];
    const bool wanted = wait_for_buffer(number);
    if (stop.look_up) {
      at::Tensor ids;
      {
        std::unique_lock lock(mutex_);
        moved_.wait(lock, [&] { return leaving_ || here_ >= number; });
        if (leaving_) throw Left();
        if (here_ == number) ids = ids_;
      }
      rows_ = looked_up(stop, ids.defined() ? ids : at::empty({0}, at::kLong));
      rows_came_.record(device_);
    } else if (wanted || world_->size() > 1) {
      fetch(stop, buffers_[buffer_of_[static_cast<size_t>(number)]]);
    }
    std::lock_guard lock(mutex_);
    made_ = number + 1;
    moved_.notify_all();
  }
  std::unique_lock lock(mutex_);   // the layers may still use the last ones
  moved_.wait(lock, [&] { return leaving_ || here_ == static_cast<int64_t>(route_.size()); });
  if (leaving_) throw Left();
}

/// The route of all ranks' places together.
std::vector<Stop> Fetcher::agreed(const std::vector<Places>& passes) {
  const auto count = static_cast<int64_t>(passes.size());
  std::vector<Places> places = passes;
  if (world_->size() > 1) {
    at::Tensor mine = at::empty({1, count}, at::kLong);
    for (int64_t i = 0; i < count; ++i) mine[0][i] = static_cast<int64_t>(passes[static_cast<size_t>(i)]);
    const std::vector<int64_t> all = numbers_of_all(mine, std::vector<int64_t>(static_cast<size_t>(world_->size()), 1));
    for (size_t i = 0; i < all.size(); ++i) places[i % places.size()] |= static_cast<Places>(all[i]);
  }
  std::vector<Stop> route;
  for (const Places one : places) {
    const std::vector<Stop> stops = units_.route(one);
    route.insert(route.end(), stops.begin(), stops.end());
  }
  return route;
}

/// Waits until what lies in the stop's buffer has been used. Whether the layers are not beyond the stop yet.
bool Fetcher::wait_for_buffer(int64_t stop) {
  int64_t before = stop - 1;
  const int buffer = buffer_of_[static_cast<size_t>(stop)];
  while (before >= 0 && (buffer < 0 || buffer_of_[static_cast<size_t>(before)] != buffer)) --before;
  std::unique_lock lock(mutex_);
  moved_.wait(lock, [&] { return leaving_ || before < 0 || here_ > before; });
  if (leaving_) throw Left();
  return here_ <= stop;
}

void Fetcher::fetch(const Stop& stop, Buffer& buffer) {
  const KeptUnit& unit = units_.unit(stop.number);
  const KeptRun& run = units_.run(unit.run);
  buffer.used.wait(device_);
  at::Tensor together = buffer.bytes.narrow(0, 0, unit.end - unit.begin);
  std::vector<int64_t> sizes;
  for (int rank = 0; rank < world_->size(); ++rank) sizes.push_back(units_.part_of(stop.number, rank).size());
  const Range part = units_.part_of(stop.number, world_->rank());
  const at::Tensor place = together.narrow(0, part.begin, part.size());
  at::Tensor mine = place;
  if (units_.in_files()) {
    buffer.sent.synchronize();
    if (stream_ && (!buffer.read.defined() || buffer.read.numel() < part.size())) buffer.read = ops::pinned(part.size());
    const at::Tensor read = stream_ ? buffer.read.narrow(0, 0, part.size()) : place;
    units_.read(loader_, unit.run, unit.begin + part.begin, unit.begin + part.end, static_cast<std::byte*>(read.mutable_data_ptr()));
    if (stream_) place.copy_(read, /*non_blocking=*/true);
    buffer.sent.record(device_);
  } else {
    const int64_t row = run.table ? units_.weight(run.weights[0]).row_bytes : 1;
    mine = run.kept.narrow(0, part.size() > 0 ? unit.begin + part.begin - run.part.begin * row : 0, part.size());
    if (mine.device() != device_) mine = place.copy_(mine, /*non_blocking=*/true);
  }
  if (world_->size() > 1 || mine.data_ptr() != place.data_ptr()) world_->all_gatherv(mine, sizes, together);
  buffer.came.record(device_);
}

at::Tensor Fetcher::looked_up(const Stop& stop, const at::Tensor& ids) {
  if (!units_.in_files()) return exchanged(stop.number, ids);
  const Kept& table = units_.weight(stop.number);
  const at::Tensor rows = at::empty({ids.size(0), table.row_bytes}, at::kByte);
  const std::vector<int64_t> wanted = values_of(ids);
  for (size_t i = 0; i < wanted.size();) {   // rows that follow each other, as positions do, are one read
    size_t end = i + 1;
    while (end < wanted.size() && wanted[end] == wanted[end - 1] + 1) ++end;
    units_.read_rows(loader_, stop.number, {wanted[i], wanted[end - 1] + 1}, static_cast<std::byte*>(rows.mutable_data_ptr()) + static_cast<int64_t>(i) * table.row_bytes);
    i = end;
  }
  return units_.rows_of(stop.number, rows.to(device_)).value();
}

/// What every rank gives, after each other. Ranks exchange tensors of their devices.
std::vector<int64_t> Fetcher::numbers_of_all(const at::Tensor& mine, const std::vector<int64_t>& counts) { return values_of(world_->all_gatherv(mine.to(device_), counts).cpu()); }

/// Every rank looks up all ranks' ids among its own rows: only what is asked for travels, not the table.
at::Tensor Fetcher::exchanged(int number, const at::Tensor& ids) {
  const Kept& table = units_.weight(number);
  const KeptRun& run = units_.run(table.run);
  const int ranks = world_->size(), me = world_->rank();
  const at::Tensor kept = units_.kept_rows(number);
  const std::vector<int64_t> ones(static_cast<size_t>(ranks), 1);
  const std::vector<int64_t> counts = numbers_of_all(at::full({1}, ids.size(0), at::kLong), ones);
  const std::vector<int64_t> all = numbers_of_all(ids, counts);
  std::vector<int64_t> found(static_cast<size_t>(ranks), 0), mine, place;   // rows that each rank gives; those of this rank; where each id's row is among its rank's
  std::vector<size_t> owner;
  for (const int64_t id : all) {
    int rank = 0;
    while (rank + 1 < ranks && part_of_table(table.shape[0], rank, ranks).end <= id) ++rank;
    owner.push_back(static_cast<size_t>(rank));
    place.push_back(found[owner.back()]++);
    if (rank == me) mine.push_back(id - run.part.begin);
  }
  const at::Tensor given = at::index_select(kept, 0, at::tensor(mine, at::kLong).to(kept.device())).to(device_), rows = world_->all_gatherv(given, found);
  int64_t before = 0, first = 0;
  for (int rank = 0; rank < me; ++rank) before += counts[static_cast<size_t>(rank)];
  std::vector<int64_t> wanted, begins;
  for (const int64_t count : found) begins.push_back(std::exchange(first, first + count));
  for (int64_t i = before; i < before + ids.size(0); ++i) wanted.push_back(begins[owner[static_cast<size_t>(i)]] + place[static_cast<size_t>(i)]);
  return units_.rows_of(number, at::index_select(rows, 0, at::tensor(wanted, at::kLong).to(device_))).value();
}

}  // namespace pm::parallel
