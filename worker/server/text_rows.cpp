// See text_rows.h.
#include "worker/server/text_rows.h"

#include <algorithm>

#include "worker/server/api_error.h"

namespace pm::server {
namespace {

const Tokenizer& tokenizer_of(const Serving& serving) {
  if (!serving.tokenizer) throw ApiError(400, "no_tokenizer", "this model has no tokenizer; send token ids (POST /v1/embeddings, POST /forward)");
  return *serving.tokenizer;
}

/// Cuts the last token of the longer text until the row fits; special tokens stay.
Row cut(Row row, size_t most) {
  while (row.size() > most) {
    size_t counts[2] = {0, 0};
    for (const Token& token : row)
      if (token.sequence >= 0) ++counts[token.sequence == 1];
    const int32_t longer = counts[1] > counts[0] ? 1 : 0;
    const auto last = std::find_if(row.rbegin(), row.rend(), [&](const Token& token) { return token.sequence == longer; });
    if (last == row.rend()) break;
    row.erase(std::next(last).base());
  }
  return row;
}

Row checked(const Serving& serving, Row row, bool truncate, const std::string& field) {
  if (row.empty()) throw ApiError(400, "invalid_value", field + " is empty; it needs at least one token", field);
  const auto most = static_cast<size_t>(longest(serving));
  if (row.size() <= most) return row;
  const size_t found = row.size();
  if (truncate) row = cut(std::move(row), most);
  if (row.size() > most)
    throw ApiError(413, "context_length_exceeded", field + " has " + std::to_string(found) + " tokens, this model takes at most " + std::to_string(most) +
                                                       (truncate ? "" : "; shorten it, or send \"truncate\": true"), field);
  return row;
}

}  // namespace

int64_t longest(const Serving& serving) {
  const int64_t positions = serving.abilities.positions;
  if (serving.abilities.takes_images) return positions;   // the plan's length is that of the shorter tower
  return positions > 0 ? std::min(positions, serving.window) : serving.window;
}

Row row_of(const Serving& serving, const std::string& text, bool truncate, const std::string& field) {
  return checked(serving, tokenizer_of(serving).tokens(text), truncate, field);
}

Row row_of(const Serving& serving, const std::string& first, const std::string& second, bool truncate, const std::string& field) {
  return checked(serving, tokenizer_of(serving).pair(first, second), truncate, field);
}

Row row_of(const Serving& serving, std::span<const int32_t> ids, bool truncate, const std::string& field) {
  Row row;
  for (int32_t id : ids) row.push_back({.id = id, .sequence = 0});
  return checked(serving, std::move(row), truncate, field);
}

Arrays arrays_of(const Serving& serving, std::span<const Row> rows) {
  size_t width = 0;
  bool typed = false;
  for (const Row& row : rows) {
    width = std::max(width, row.size());
    for (const Token& token : row) typed = typed || token.type != 0;
  }
  const std::vector<int64_t> shape{static_cast<int64_t>(rows.size()), static_cast<int64_t>(width)};
  std::vector<int64_t> ids(rows.size() * width), mask(ids.size()), types(ids.size());   // what the mask leaves out is never read: 0 is in every vocabulary
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
  if (typed && serving.abilities.token_types) arrays["token_type_ids"] = {shape, std::move(types)};
  return arrays;
}

std::vector<size_t> batches(std::span<const Row> rows, size_t tokens) {
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
