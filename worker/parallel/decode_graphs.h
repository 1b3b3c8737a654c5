// Decoding steps as recorded launches (ENGINE.md 6): a graph for each bucket of batch sizes, which reads only what one copy has put into fixed places.
#pragma once
#include <functional>
#include <map>
#include <memory>

#include "worker/models/model.h"
#include "worker/ops/graph.h"

namespace pm::parallel {

class DecodeGraphs {
 public:
  /// `longest`: tokens of the longest sequence. On devices whose launches cannot be recorded nothing fits.
  DecodeGraphs(at::Device, int64_t longest);
  /// Whether the step is one token each of some sequences, and no more of them than the largest bucket has places.
  bool fits(const models::StepRows&) const;
  /// The hidden states [tokens, hidden] of a step that fits, as `step` makes them of rows that stay where they are. A bucket's first step runs twice: once as it is,
  /// so that libraries are ready, and once recorded; when there is no memory for that, nothing fits any more. The result stays until the next call.
  at::Tensor run(const models::StepRows&, const std::function<at::Tensor(models::StepRows&)>& step);

 private:
  /// Places for so many rows, those of sequences without keys among them.
  struct Bucket {
    at::Tensor host, device;         ///< bytes: tokens, positions, slots [rows] int64, then the sequences as kernels read them (ops/packed.h)
    models::StepRows rows;           ///< whose tensors lie in `device`
    at::Tensor hidden;
    std::unique_ptr<ops::Graph> graph;
  };
  Bucket& bucket(int64_t rows);
  void fill(Bucket&, int64_t places, const models::StepRows&) const;
  const at::Device device_;
  const ops::Recorder record_;
  const int64_t longest_, table_stride_;
  std::map<int64_t, Bucket> buckets_;
  bool full_ = false;                ///< a recording found no memory
};

}  // namespace pm::parallel
