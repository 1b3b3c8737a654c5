// Decoding steps as recorded launches (ENGINE.md 6): a graph for each bucket of batch sizes, which reads only what one copy has put into fixed places.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>

#include "worker/comm/communicator.h"
#include "worker/models/model.h"
#include "worker/ops/graph.h"
#include "worker/ops/stream.h"

namespace pm::parallel {

/// All ranks of a tensor group run the same buckets in the same order. A bucket's first step is launched kernel by kernel, so that libraries are ready, and then recorded, which for
/// collectives only notes them; ranks agree in the host's memory before and after that whether all of them could. When one cannot, for it has no memory or does not want to, all give up what they
/// have recorded, and steps are launched kernel by kernel from there on.
class DecodeGraphs {
 public:
  static constexpr int64_t most_places = 64;

  /// `longest`: tokens of the longest sequence. `wanted`: this rank records. `recorded` and `replayed` count buckets and steps.
  DecodeGraphs(at::Device, int64_t longest, bool wanted, comm::Communicator& group, std::atomic<int64_t>& recorded, std::atomic<int64_t>& replayed);
  /// Places of the bucket for so many sequences: 1, 2, 4, then multiples of 8.
  static int64_t places_for(int64_t sequences);
  /// The same; 0 when nothing can be recorded, or they are too many.
  int64_t places(int64_t sequences) const;
  /// The hidden states [tokens, hidden] of a step of one token each, as `step` makes them of rows that stay where they are; places without a sequence have no keys.
  /// The result stays until the next call. Throws std::logic_error for a step that is not one of a bucket of so many places.
  at::Tensor run(models::StepRows&, int64_t places, const std::function<at::Tensor(models::StepRows&)>& step);

 private:
  struct Bucket {
    at::Tensor host, device;         ///< bytes: tokens, positions, slots [rows] int64, then the sequences as kernels read them (ops/packed.h)
    ops::Mark copied;                ///< when `host` may be filled again
    models::StepRows rows;           ///< whose tensors lie in `device`
    at::Tensor hidden;
    std::unique_ptr<ops::Graph> graph;
  };
  void make(Bucket&, int64_t places) const;
  void fill(Bucket&, int64_t places, const models::StepRows&) const;
  bool with_memory(const std::function<void()>&) const;
  bool all_ranks(bool mine);
  void give_up(int64_t places);
  const at::Device device_;
  const ops::Recorder record_;
  const int64_t longest_, table_stride_;
  comm::Communicator& group_;
  std::map<int64_t, Bucket> buckets_;
  std::atomic<bool> given_up_{false};
  std::atomic<int64_t> &recorded_, &replayed_;
};

}  // namespace pm::parallel
