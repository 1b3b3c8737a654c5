// Brings units together in one of two buffers, one ahead of the layers that use them, on a thread of its own: the only one of the rank that talks to others in a step.
// On a device its work is on a stream of its own, beside that of the layers; events say when a buffer has what they want, and when they are done with it.
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
#include "worker/parallel/units.h"

namespace pm::parallel {

/// All ranks make the same stops in the same order. A rank that has no use for a stop takes part in it and goes on.
class Fetcher final : public layers::Gatherer {
 public:
  /// `buffer`: bytes of each of two.
  Fetcher(Units&, layers::Loader&, int64_t buffer, std::shared_ptr<comm::Communicator>);
  ~Fetcher() override;

  /// Begins a step: `places` that this rank passes through, in passes after each other. The route is that of all ranks' places together; waits for them.
  void begin(std::vector<Places> passes);
  /// Ends it: returns when all stops have been made. Throws what befell the thread.
  void finish();
  void tiles(int weight, const std::function<void(int64_t first, const layers::Weight& rows)>& use) override;
  at::Tensor look_up(int weight, const at::Tensor& ids) override;

 private:
  void go(const Stop&, at::Tensor ids = {});
  void run();
  void make_stops();
  std::vector<Stop> agreed(const std::vector<Places>& passes);
  bool wait_for_buffer(int64_t stop);
  void leave(int64_t stop);
  struct Buffer;
  void fetch(const Stop&, Buffer&);
  at::Tensor looked_up(const Stop&, const at::Tensor& ids);
  at::Tensor exchanged(int weight, const at::Tensor& ids);
  std::vector<int64_t> numbers_of_all(const at::Tensor& mine, const std::vector<int64_t>& counts);

  Units& units_;
  layers::Loader& loader_;
  const std::shared_ptr<comm::Communicator> world_;
  const at::Device device_;
  std::optional<c10::Stream> stream_;   ///< the thread's; nothing on the processor
  struct Buffer {
    at::Tensor bytes;
    ops::Mark came, used;              ///< what the layers wait for, and what the next unit waits for
    at::Tensor read;                   ///< of a device: this rank's part of a unit from files, pinned
    ops::Mark sent;                    ///< when `read` may be filled again
  } buffers_[2];
  ops::Mark rows_came_;

  std::mutex mutex_;                 ///< guards all below
  std::condition_variable moved_;
  std::optional<std::vector<Places>> passes_;   ///< of the step under way
  std::vector<Stop> route_;
  std::vector<int> buffer_of_;       ///< of each stop; -1: none
  bool on_route_ = false;            ///< the route is agreed on
  int64_t made_ = 0;                 ///< stops that have been made
  int64_t here_ = -1;                ///< the stop that the layers are at; what they want of those before they have had
  at::Tensor ids_, rows_;            ///< of a look-up: what is asked (in the host's memory), what came
  std::exception_ptr failure_;
  bool leaving_ = false;
  std::thread thread_;
};

}  // namespace pm::parallel
