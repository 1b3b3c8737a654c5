// Named inputs as Hugging Face takes them, turned into the ragged rows of each stack and back.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "worker/base/array.h"
#include "worker/layers/batch.h"
#include "worker/policy/model.h"

namespace pm::models {

/// What one stack gets, and where its rows belong in the padded form.
struct Feed {
  layers::Batch batch;
  int64_t rows = 0, length = 0;        ///< of the padded form
  int64_t tokens = 0;                  ///< of its columns those of tokens or patches; dense vectors have those behind them
  std::vector<at::Tensor> columns;     ///< of each sequence: the columns that its tokens came from
  at::Tensor places;                   ///< [tokens]: of each in [rows x length]

  /// Rows of a stack's states: tokens, or an image's patches with its class token.
  int64_t rows_of_batch() const;
  /// [tokens, width] -> [rows, length, width], zero where no token is.
  at::Tensor padded(const at::Tensor& values) const;
  /// Per sequence [heads, queries, keys] -> [rows, heads, length, keys' length], zero where no token is. `keys`: whose columns the keys are.
  at::Tensor padded(const std::vector<at::Tensor>& of_sequences, const Feed& keys) const;
};

struct Inputs {
  std::map<std::string, Feed> feeds;   ///< by name of the stack; a tower without inputs is absent
  int64_t choices = 0;                 ///< > 0: rows are choices, so many to a question
  std::vector<int64_t> ends;           ///< of each sequence of a model that pools there: which of its tokens is the end token, or the last but one
  std::map<std::string, at::Tensor> of_heads;   ///< what heads are given besides: p_mask, cls_index, the columns that pairs choose

  /// The same on another device; made on the processor, where they are read.
  Inputs on(at::Device) &&;
};

/// Makes the rows of every stack. input_ids [batch, length] with attention_mask, position_ids and the tables of the input; encoder-decoders also
/// decoder_input_ids and decoder_attention_mask (absent: input_ids shifted right); image stacks pixel_values [images, channels, height,
/// width]; multiple choice [batch, choices, length]; dense vectors as the stack's features call them; what its heads read besides. Throws Error{Request, "InvalidRequest"} that names the tensor, what it is and what is
/// expected.
Inputs inputs_of(const policy::Model&, const Arrays&);

/// A tensor as it is sent and stored; 64-bit integers or fp32.
Array array_of(const at::Tensor&);
/// A tensor that looks into the array's memory.
at::Tensor tensor_of(const Array&);

}  // namespace pm::models
