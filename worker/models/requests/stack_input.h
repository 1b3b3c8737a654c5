// SPDX-License-Identifier: Apache-2.0
// The inputs of one request as the unpadded rows of each stack, which pad outputs again.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/layers/batch.h"
#include "worker/layers/rows/pooling.h"
#include "worker/policy/spec/model.h"

namespace pm::models {

/// The input of one stack, and where its rows belong in the padded form.
struct StackInput {
  layers::Batch batch;
  int64_t rows = 0, length = 0;     ///< of the padded form
  int64_t tokens = 0;               ///< columns of tokens or patches; dense vectors have the columns after them
  std::vector<at::Tensor> columns;  ///< of each sequence: the columns that its tokens came from
  at::Tensor places;                ///< [tokens]: the index of each in [rows x length]
  std::vector<std::array<int64_t, 2>> image_grids;  ///< of images of any size: rows and columns of squares of patches
  bool has_targets = false;               ///< the columns behind the tokens are those of targets (policy::Targets)
  at::Tensor entity_starts, entity_ends;  ///< [entities]: rows of the tokens where the mention of each begins and ends

  /// Returns the number of rows of the stack's states: tokens, or an image's patches with its class token.
  int64_t batch_rows() const;
  /// Pads [tokens, width] to [rows, length, width], with zeros where no token is.
  at::Tensor padded(const at::Tensor& values) const;
  /// Pads [heads, queries, keys] of each sequence to [rows, heads, length, keys' length], with zeros where no token
  /// is. `keys` is the stack whose columns the keys are; `hidden` stands instead of zero where there is none.
  at::Tensor padded(const std::vector<at::Tensor>& of_sequences, const StackInput& keys, float hidden = 0) const;
  /// Pads [heads, tokens, global tokens + others] of each sequence to [rows, heads, length, most global tokens +
  /// others], with zeros where no token is. `global` tells the number of global tokens by its last dimension.
  at::Tensor padded_windows(const std::vector<at::Tensor>& of_sequences, const std::vector<at::Tensor>& global) const;
};

/// Lays out the columns with mask 1 of all rows [rows, length] one after another. Throws Error{InvalidRequest} that
/// names the tensor `name` for a row without any.
void lay_out(const std::string& name, const at::Tensor& mask, StackInput&);

/// Makes the tokens with mask 1 [rows, length] the only keys of rows that were laid out with their padding. Throws
/// Error{InvalidRequest} that names the tensor `name` for a row without any, or with a 0 between ones.
void hide_padding(const policy::Model&, const std::string& name, const at::Tensor& mask, StackInput&);

/// Returns the input with the rows of layers that pool, which all are laid out with their padding: as many for each row
/// of the padded form.
StackInput with_rows(const StackInput&, const layers::PooledRows&);

struct Inputs {
  std::map<std::string, StackInput> stack_inputs;  ///< by name of the stack; a tower without inputs is absent
  /// Of stacks that pool or have latents: the rows of each hidden state, and behind those of latents the output's.
  std::map<std::string, std::vector<StackInput>> rows_of_states;
  int64_t choices = 0;        ///< choices per question; 0: rows are not choices
  std::vector<int64_t> ends;  ///< of each sequence of a model that pools there: which of its tokens is the end token,
                              ///< the last but one, or the one that the request names
  std::map<std::string, at::Tensor> head_inputs;  ///< inputs of heads: p_mask, cls_index, the columns that pairs choose

  /// Returns the rows of a hidden state of a stack, without `number` of its output. Only rows, length, columns, places
  /// and the sequences of the batch are set where they are not those of the input.
  const StackInput& rows_of(const std::string& stack, std::optional<int64_t> number = std::nullopt) const;
  /// Returns an input of heads; undefined when it is absent.
  at::Tensor head_input(const std::string& name) const;
  /// Moves the tensors to another device. They are made on the CPU.
  Inputs on(at::Device) &&;
};

}  // namespace pm::models
