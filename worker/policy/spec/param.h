// SPDX-License-Identifier: Apache-2.0
// One parameter of a model, and the linears and norms that are made of parameters.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/dtype.h"
#include "planner/model_metadata.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/policy/spec/role.h"

namespace pm::policy {

/// How several logical matrices lie in one stored tensor, along the output dimension. Concat: all rows of one matrix,
/// then all of the next. PerHead: for each head its q, k and v rows. Grouped: for each kv head its q heads, its k and
/// its v. Blocks: the parts in each of several equal blocks of heads. Interleaved: a row of each in turn.
/// Strided: the rows of a unit begin `stride` rows behind those of the unit before; the parts may have unlike sizes.
enum class Fused : uint8_t { None, Concat, PerHead, Grouped, Blocks, Interleaved, Strided };

/// One parameter of the model: its role, its logical shape and the tensor of the checkpoint that holds it.
struct Param {
  Role role = Role::NormWeight;
  std::string path;   ///< internal name: "decoder.layers.0.attn.query.weight"
  std::string stack;  ///< name of the stack, "" outside
  int layer = -1;
  const checkpoint::TensorInfo* tensor = nullptr;  ///< owned by the Checkpoint
  std::vector<int64_t> shape;  ///< logical and whole: [out, in] for matrices whatever the storage order
  bool conv1d = false;         ///< stored as [in, out] (Conv1D)
  Fused fused = Fused::None;
  int part = 0, parts = 1;  ///< which of the fused matrices (q=0, k=1, v=2)
  int64_t units = 1;        ///< along the sharded dimension: heads, rows of kv heads, ffn columns, vocabulary rows
  int64_t block = 1;        ///< units per head: head_dim for rows of kv heads, else 1
  int64_t group = 1;        ///< fused only: q heads per kv head
  int64_t blocks = 1;       ///< Blocks only: the number of blocks
  int block_part = 0;       ///< Blocks only: the index of this part in a block
  int64_t offset = 0, stride = 0;  ///< Strided only: the row at which the part begins, rows from a unit to the next
  DType dtype = DType::F32;        ///< type in memory unless the plan's precision overrides it
  bool keep = false;               ///< true: the plan's precision does not override dtype
  bool f32_if_f16 = false;         ///< its products leave the range of F16: F32 in a model of F16
  bool matrix = false;   ///< multiplied, or sharing storage with a parameter that is: I8 and I4 hold it as codes
  int64_t segments = 1;  ///< sharded by heads only: runs of all heads that lie one after another (ConvBERT's inputs
                         ///< of heads that attend, then of those that convolve; ProphetNet's outputs for each
                         ///< bucket of distances); a rank has its heads of each
  std::string shares;    ///< path of an earlier parameter with the same storage; empty: storage of its own
  std::string own_name;  ///< of a parameter that may be tied to another: the name of a tensor of its own
  /// The blocks of a block-diagonal matrix (a convolution in groups), which is stored as [out, in / blocks]; `shape` is
  /// that, or [out / blocks, in] where inputs are sharded.
  int64_t diagonal_blocks = 1;
  /// The tensor has one more dimension, its first, of so many parameters (the experts of a layer); this one is number
  /// `member` of it.
  int64_t member = 0, members = 1;
  RoutedShare routed;
  int layout = 0;  ///< of the heads that it belongs to: planner's Part::layout
};

struct Linear {
  Param weight;
  std::optional<Param> bias;
};

/// GemmaRms is RMSNorm that multiplies by 1 + weight (Gemma), Layer1p is LayerNorm that does so (Nemotron). Affine is
/// weight * x + bias, without statistics (MobileBERT's NoNorm).
enum class NormKind : uint8_t { Layer, Rms, GemmaRms, Layer1p, Affine };
/// Returns true for the kinds that take the mean off.
constexpr bool is_layer_norm(NormKind kind) { return kind == NormKind::Layer || kind == NormKind::Layer1p; }
struct Norm {
  NormKind kind = NormKind::Layer;
  double eps = 1e-5;
  std::optional<Param> weight, bias;
};

/// Collects parameters that have a tensor, in the order in which they are added.
class ParamCollector {
 public:
  void add(const Param&);
  void add(const std::optional<Param>&);
  void add(const Linear&);
  void add(const std::optional<Linear>&);
  void add(const std::optional<Norm>&);
  const std::vector<const Param*>& params() const { return params_; }

 private:
  std::vector<const Param*> params_;
};

}  // namespace pm::policy
