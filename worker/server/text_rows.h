// Texts as the rows of a forward pass: tokenized, checked against the model's length or cut to it, laid out with their masks.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "worker/server/passes.h"
#include "worker/tokenizer/tokenizer.h"

namespace pm::server {

/// One row: the tokens of a text or a pair, or ids alone.
using Row = std::vector<Token>;

/// The most tokens of one row: the model's positions and the plan's sequence length.
int64_t longest(const Serving&);

/// Tokens of a text with special tokens, at most longest(): a longer one is 413 with the numbers, or loses tokens of its end when `truncate`.
/// `field` names it in errors. Throws ApiError 400 when the model has no tokenizer.
Row row_of(const Serving&, const std::string& text, bool truncate, const std::string& field);
/// Of two texts joined as the checkpoint's tokenizer joins pairs; truncation takes from the longer one.
Row row_of(const Serving&, const std::string& first, const std::string& second, bool truncate, const std::string& field);
/// Of ids as they are.
Row row_of(const Serving&, std::span<const int32_t> ids, bool truncate, const std::string& field);

/// input_ids and attention_mask [rows, longest row], and token_type_ids where the model has them and they are not all 0.
Arrays arrays_of(const Serving&, std::span<const Row> rows);

/// Where each pass's rows begin, and the end: rows of at most `tokens` places together, at least one row. {0, 3, 5}: rows 0..2, then 3..4.
std::vector<size_t> batches(std::span<const Row> rows, size_t tokens);

/// Tokens of a pass that is made of several rows: what one step of generation takes at most as well.
constexpr size_t kPassTokens = 512;

}  // namespace pm::server
