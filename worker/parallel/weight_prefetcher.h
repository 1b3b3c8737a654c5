// SPDX-License-Identifier: Apache-2.0
// Prefetches gather units into one of two buffers, one unit ahead of the layers that use them. Its thread is the only
// one of the rank that communicates during a step. On a device it works on a stream of its own, beside the stream of
// the layers; events say when a buffer is ready and when the layers have released it.
#pragma once
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "worker/comm/communicator.h"
#include "worker/ops/stream.h"
#include "worker/parallel/gather_units.h"

namespace pm::parallel {

/// Runs the gather schedule of a step. All ranks run the same operations in the same order; a rank that does not need
/// an operation takes part in it and goes on.
class WeightPrefetcher final : public layers::WeightGatherer {
 public:
  /// `buffer` is the size in bytes of each of the two buffers.
  WeightPrefetcher(GatherUnits&, layers::Loader&, int64_t buffer, std::shared_ptr<comm::Communicator>);
  ~WeightPrefetcher() override;

  /// Begins a step. `forwards` holds the stages that this rank uses in each of the forward passes of the step. Waits
  /// until all ranks have agreed on a schedule, which covers the stages of all of them.
  void begin(std::vector<StageMask> forwards);
  /// Ends the step: returns when all operations are done. Rethrows the error that ended the thread, if any.
  void finish();
  /// Ends a step that an exception left, so that the next one can begin. Does nothing where other ranks take part: they
  /// may never get to the end of the step, and the group of ranks fails.
  void abandon() noexcept;
  void tiles(int weight, const std::function<void(int64_t first, const layers::Weight& rows)>& use) override;
  at::Tensor look_up(int weight, const at::Tensor& ids) override;

 private:
  void advance_to(const GatherOp&, at::Tensor ids = {});
  void run();
  void run_schedule();
  std::vector<GatherOp> agree_on_schedule(const std::vector<StageMask>& forwards);
  bool wait_for_buffer(int64_t op);
  void release_buffer(int64_t op);
  struct Buffer;
  void fetch(const GatherOp&, Buffer&);
  at::Tensor look_up_rows(const GatherOp&, const at::Tensor& ids);
  at::Tensor exchange_rows(int weight, const at::Tensor& ids);
  std::vector<int64_t> all_gather_ids(const at::Tensor& mine, const std::vector<int64_t>& counts);

  GatherUnits& units_;
  layers::Loader& loader_;
  const std::shared_ptr<comm::Communicator> world_;
  const at::Device device_;
  std::optional<c10::Stream> stream_;  ///< stream of the thread; nothing on CPU
  struct Buffer {
    at::Tensor bytes;
    ops::StreamEvent ready, released;  ///< `ready`: the layers wait for it; `released`: the next unit waits for it
    at::Tensor read;        ///< pinned memory for the part of a unit that this rank reads from files, on a device
    ops::StreamEvent sent;  ///< after it `read` may be filled again
  } buffers_[2];
  ops::StreamEvent rows_ready_;

  std::mutex mutex_;  ///< guards all below
  std::condition_variable changed_;
  std::optional<std::vector<StageMask>> forwards_;  ///< forward passes of the current step
  std::vector<GatherOp> schedule_;
  std::vector<int> buffer_of_;   ///< buffer of each operation; -1 without one
  bool schedule_ready_ = false;  ///< all ranks have agreed on the schedule
  int64_t completed_ops_ = 0;    ///< operations that are done
  int64_t position_ = -1;        ///< operation that the layers use; they need none before it
  at::Tensor ids_, rows_;        ///< of a look-up: requested ids (in host memory) and the rows found
  std::exception_ptr failure_;
  bool leaving_ = false;
  std::thread thread_;
};

}  // namespace pm::parallel
