// SPDX-License-Identifier: Apache-2.0
#include "worker/server/tasks/text_rows.h"

#include <algorithm>
#include <array>

#include "worker/server/http/api_error.h"

namespace pm::server {
namespace {

/// Returns how many tokens of the two texts of a pair stay where `most` may. As in the tokenizers crate, the shorter
/// text keeps its tokens while the longer one has more.
std::array<size_t, 2> kept_tokens(std::array<size_t, 2> counts, size_t most) {
  const bool swapped = counts[0] > counts[1];
  size_t shorter = std::min(counts[0], counts[1]);
  size_t longer = shorter > most ? shorter : std::max(shorter, most - shorter);
  if (shorter + longer > most) {
    shorter = most / 2;
    longer = most - shorter;
  }
  return swapped ? std::array{longer, shorter} : std::array{shorter, longer};
}

/// Removes the last tokens of the longer text until the row fits; special tokens stay.
Row truncate_row(const Row& row, size_t max_tokens) {
  std::array<size_t, 2> counts{};
  for (const Token& token : row)
    if (token.sequence >= 0) ++counts[token.sequence == 1];
  const size_t special = row.size() - counts[0] - counts[1];
  std::array<size_t, 2> left = kept_tokens(counts, max_tokens - std::min(max_tokens, special));
  Row kept;
  for (const Token& token : row)
    if (token.sequence < 0 || left[token.sequence == 1] > 0) {
      kept.push_back(token);
      if (token.sequence >= 0) --left[token.sequence == 1];
    }
  return kept;
}

}  // namespace

const Tokenizer& required_tokenizer(const ServerContext& context) {
  if (!context.tokenizer)
    throw ApiError(400, "no_tokenizer",
                   "this model has no tokenizer; send token ids (POST /v1/embeddings, POST /forward)");
  return *context.tokenizer;
}

Row fit_row(Row row, int64_t max_tokens, bool truncate, const std::string& field) {
  if (row.empty()) throw ApiError(400, "invalid_value", field + " is empty; it needs at least one token", field);
  const size_t found = row.size(), most = static_cast<size_t>(max_tokens);
  if (found <= most) return row;
  if (truncate) row = truncate_row(row, most);
  if (row.size() > most)
    throw ApiError(413, "context_length_exceeded",
                   field + " has " + std::to_string(found) + " tokens, this model takes at most " +
                       std::to_string(max_tokens) + (truncate ? "" : "; shorten it, or send \"truncate\": true"),
                   field);
  return row;
}

int64_t max_input_tokens(const ServerContext& context) {
  const int64_t positions = context.capabilities.positions;
  if (context.capabilities.takes_images) return positions;  // the plan's sequence length is that of the shorter tower
  return positions > 0 ? std::min(positions, context.max_model_len) : context.max_model_len;
}

Row encode_row(const ServerContext& context, const std::string& text, bool truncate, const std::string& field) {
  return fit_row(required_tokenizer(context).encode_with_offsets(text), max_input_tokens(context), truncate, field);
}

Row encode_row(const ServerContext& context, const std::string& first, const std::string& second, bool truncate,
               const std::string& field) {
  return fit_row(required_tokenizer(context).encode_pair(first, second), max_input_tokens(context), truncate, field);
}

Row encode_row(const ServerContext& context, std::span<const int32_t> ids, bool truncate, const std::string& field) {
  Row row;
  for (int32_t id : ids) row.push_back({.id = id, .sequence = 0});
  return fit_row(std::move(row), max_input_tokens(context), truncate, field);
}

Arrays pad_rows(const ServerContext& context, std::span<const Row> rows) {
  size_t width = 0;
  bool typed = false;
  for (const Row& row : rows) {
    width = std::max(width, row.size());
    for (const Token& token : row) typed = typed || token.type != 0;
  }
  const std::vector<int64_t> shape{static_cast<int64_t>(rows.size()), static_cast<int64_t>(width)};
  std::vector<int64_t> ids(rows.size() * width), mask(ids.size()),
      types(ids.size());  // masked positions are never read; 0 is in every vocabulary
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t i = 0; i < rows[r].size(); ++i) {
      ids[r * width + i] = rows[r][i].id;
      types[r * width + i] = rows[r][i].type;
      mask[r * width + i] = 1;
    }
  }
  Arrays arrays;
  arrays["input_ids"] = {shape, std::move(ids)};
  arrays["attention_mask"] = {shape, std::move(mask)};
  if (typed && context.capabilities.token_types) arrays["token_type_ids"] = {shape, std::move(types)};
  return arrays;
}

std::vector<size_t> split_into_batches(std::span<const Row> rows, size_t tokens) {
  std::vector<size_t> starts;
  size_t width = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    const size_t wider = std::max(width, rows[r].size());
    if (starts.empty() || wider * (r + 1 - starts.back()) > tokens) {
      starts.push_back(r);
      width = rows[r].size();
    } else {
      width = wider;
    }
  }
  starts.push_back(rows.size());
  return starts;
}

}  // namespace pm::server
