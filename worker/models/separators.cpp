// SPDX-License-Identifier: Apache-2.0
#include "worker/models/separators.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace pm::models {

namespace {

/// Returns the column of the first of a row's separators, of which there are three: one after the question, one before
/// and one after the other text.
int64_t first_separator(const policy::Model& model, const at::Tensor& ids, int64_t row) {
  const at::Tensor separators = (ids[row] == model.separator).nonzero().squeeze(1);
  if (separators.numel() != 3) {
    refuse("row " + std::to_string(row) + " of input_ids has the separator (id " + std::to_string(model.separator) +
           ") " + std::to_string(separators.numel()) + " times, " + model.architecture +
           " finds its global tokens by three of them; give global_attention_mask otherwise");
  }
  return separators[0].item<int64_t>();
}

/// Returns the mask of global tokens [rows, length] that the class makes itself.
at::Tensor default_mask(const policy::Model& model, const at::Tensor& ids) {
  at::Tensor mask = at::zeros_like(ids);
  const int64_t length = ids.size(1);
  for (int64_t row = 0; row < ids.size(0); ++row) {
    int64_t begin = 0, end = 0;
    switch (model.global_tokens) {
      case policy::GlobalTokens::None:
        break;
      case policy::GlobalTokens::First:
        end = 1;
        break;
      case policy::GlobalTokens::BeforeSeparator:
        end = first_separator(model, ids, row);
        break;
      case policy::GlobalTokens::AfterSeparators:
        begin = std::min(length, first_separator(model, ids, row) + 2);
        end = length;
        break;
    }
    mask[row].narrow(0, begin, end - begin).fill_(1);
  }
  return mask;
}

}  // namespace

bool reads_columns(const policy::Stack& stack) {
  return std::any_of(stack.layers.begin(), stack.layers.end(), [](const policy::Layer& layer) {
    return layer.attention.is_sparse() || layer.attention.chunks || layer.attention.relative_content ||
           layer.attention.content_buckets || layer.branch;
  });
}

std::string segments_input(const policy::Stack& stack) {
  for (const policy::Layer& layer : stack.layers)
    if (const auto& content = layer.attention.relative_content; content && content->segments)
      return content->segments->input;
  return {};
}

bool has_sliding_window(const policy::Stack& stack) {
  return std::any_of(stack.layers.begin(), stack.layers.end(), [](const policy::Layer& layer) {
    return std::holds_alternative<policy::SlidingWindow>(layer.attention.pattern);
  });
}

std::vector<ops::SequenceColumns> sequence_columns(const policy::Model& model, const policy::Stack& stack,
                                                   const at::Tensor& ids, const StackInput& stack_input,
                                                   RequestTensors& tensors) {
  at::Tensor global;
  if (has_sliding_window(stack)) {
    global = tensors.mask("global_attention_mask", ids.sizes());
    if (!global.defined()) global = default_mask(model, ids);
  }
  std::vector<ops::SequenceColumns> all;
  for (size_t row = 0; row < stack_input.columns.size(); ++row) {
    const at::Tensor& columns = stack_input.columns[row];
    ops::SequenceColumns& own = all.emplace_back();
    own.length = stack_input.length;
    const int64_t count = columns.numel();
    const auto* first = columns.const_data_ptr<int64_t>();
    if (first[count - 1] != count - 1) own.columns.assign(first, first + count);
    if (!global.defined()) continue;
    const at::Tensor marks = at::index_select(global[static_cast<int64_t>(row)], 0, columns);
    const auto* mark = marks.const_data_ptr<int64_t>();
    for (int64_t token = 0; token < count; ++token)
      if (mark[token] != 0) own.global_tokens.push_back(token);
  }
  return all;
}

bool masks_question(const policy::Model& model) {
  return std::any_of(model.heads.begin(), model.heads.end(), [](const policy::Head& head) {
    const auto* classes = head.as<policy::ClassesSpec>();
    return classes && classes->mask_question;
  });
}

at::Tensor question_lengths(const policy::Model& model, const at::Tensor& ids, RequestTensors& tensors) {
  const at::Tensor given = tensors.ints("question_lengths", {});
  if (!given.defined()) return (ids == model.separator).to(at::kLong).argmax(1) + 1;
  if (given.size(0) != ids.size(0) || given.size(1) != 1)
    refuse("question_lengths has the shape " + c10::str(given.sizes()) + ", expected [" + std::to_string(ids.size(0)) +
           ", 1]");
  return given.squeeze(1).clone();
}

}  // namespace pm::models
