// SPDX-License-Identifier: Apache-2.0
// One rank's units of a block that keeps a state of each sequence.
#pragma once
#include <memory>
#include <vector>

#include "worker/layers/layers.h"
#include "worker/layers/recurrent/state.h"
#include "worker/policy/spec/recurrent/recurrent.h"

namespace pm::layers {

class RecurrentBlock {
 public:
  virtual ~RecurrentBlock() = default;
  /// Computes the block of policy::Recurrent for x [tokens, hidden]: the result of this rank's units [tokens, columns],
  /// in the type of x, before the output projection. With `state`, each sequence of the batch goes on from the row of
  /// its slot, or from zeros at its first token, and leaves its state there. Without, all begin.
  virtual at::Tensor operator()(const at::Tensor& x, const Batch&, LayerState* state, comm::Communicator&) const = 0;
  virtual const RowLinear& out() const = 0;

 protected:
  /// The causal convolution of the block, of each channel alone.
  struct Convolution {
    at::Tensor taps;         ///< [channels, taps] F32
    at::Tensor bias;         ///< [channels] F32; undefined: none
    bool activated = false;  ///< SiLU follows
  };
  /// Rows of one sequence, in order, or one row of each of several sequences.
  struct Rows {
    at::Tensor convolved;             ///< [rows, channels]
    std::vector<at::Tensor> factors;  ///< what else the block makes of these rows
    at::Tensor& matrices;  ///< [matrices, rows, columns], or such of each row; becomes that behind the last row
    bool single = false;   ///< one row of each sequence
  };
  /// Loads the taps and biases of convolutions that stand beside each other.
  static Convolution convolution(const std::vector<Weight>& taps, const std::vector<Weight>& biases, bool activated);
  /// Returns what rows make of states: [rows, columns] F32. It advances the states.
  virtual at::Tensor read(Rows) const = 0;
  /// Returns read() of all rows of a step. `mixed` [tokens, channels] F32 goes through the convolution; `factors` have
  /// a row for each token. `shape` is that of the matrices of one sequence; empty: there are none.
  at::Tensor run(const at::Tensor& mixed, const std::vector<at::Tensor>& factors, const Convolution&,
                 at::IntArrayRef shape, const Batch&, LayerState*) const;

 private:
  at::Tensor run_sequence(const at::Tensor& mixed, const std::vector<at::Tensor>& factors, const Convolution&,
                          at::IntArrayRef shape, const ops::SequenceSpan&, LayerState*, int64_t slot) const;
  at::Tensor run_tokens(const at::Tensor& mixed, const std::vector<at::Tensor>& factors, const Convolution&,
                        const at::Tensor& rows, const at::Tensor& slots, LayerState&) const;
};

std::unique_ptr<const RecurrentBlock> make_recurrent(const policy::Recurrent&, Loader&);

}  // namespace pm::layers
