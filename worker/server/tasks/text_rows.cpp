// SPDX-License-Identifier: Apache-2.0
#include "worker/server/tasks/text_rows.h"

#include <algorithm>

#include "worker/server/http/api_error.h"

namespace pm::server {
namespace {

const Tokenizer& tokenizer_of(const ServerContext& context) {
  if (!context.tokenizer)
    throw ApiError(400, "no_tokenizer",
                   "this model has no tokenizer; send token ids (POST /v1/embeddings, POST /forward)");
  return *context.tokenizer;
}

/// Removes the last token of the longer text until the row fits; special tokens stay.
Row truncate_row(Row row, size_t max_tokens) {
  while (row.size() > max_tokens) {
    size_t counts[2] = {0, 0};
    for (const Token& token : row)
      if (token.sequence >= 0) ++counts[token.sequence == 1];
    const int32_t longer = counts[1] > counts[0] ? 1 : 0;
    const auto last =
        std::find_if(row.rbegin(), row.rend(), [&](const Token& token) { return token.sequence == longer; });
    if (last == row.rend()) break;
    row.erase(std::next(last).base());
  }
  return row;
}

Row check_length(const ServerContext& context, Row row, bool truncate, const std::string& field) {
  if (row.empty()) throw ApiError(400, "invalid_value", field + " is empty; it needs at least one token", field);
  const auto max_tokens = static_cast<size_t>(max_input_tokens(context));
  if (row.size() <= max_tokens) return row;
  const size_t found = row.size();
  if (truncate) row = truncate_row(std::move(row), max_tokens);
  if (row.size() > max_tokens)
    throw ApiError(413, "context_length_exceeded",
                   field + " has " + std::to_string(found) + " tokens, this model takes at most " +
                       std::to_string(max_tokens) + (truncate ? "" : "; shorten it, or send \"truncate\": true"),
                   field);
  return row;
}

}  // namespace

int64_t max_input_tokens(const ServerContext& context) {
  const int64_t positions = context.capabilities.positions;
  if (context.capabilities.takes_images) return positions;  // the plan's sequence length is that of the shorter tower
  return positions > 0 ? std::min(positions, context.max_model_len) : context.max_model_len;
}

Row encode_row(const ServerContext& context, const std::string& text, bool truncate, const std::string& field) {
  return check_length(context, tokenizer_of(context).encode_with_offsets(text), truncate, field);
}

Row encode_row(const ServerContext& context, const std::string& first, const std::string& second, bool truncate,
               const std::string& field) {
  return check_length(context, tokenizer_of(context).encode_pair(first, second), truncate, field);
}

Row encode_row(const ServerContext& context, std::span<const int32_t> ids, bool truncate, const std::string& field) {
  Row row;
  for (int32_t id : ids) row.push_back({.id = id, .sequence = 0});
  return check_length(context, std::move(row), truncate, field);
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
