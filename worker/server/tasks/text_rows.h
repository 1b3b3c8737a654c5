// SPDX-License-Identifier: Apache-2.0
// Tokenizes texts into the rows of a forward pass, checks or truncates their length, and pads them into batches.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "worker/server/tasks/forward_runner.h"
#include "worker/tokenizer/tokenizer.h"

namespace pm::server {

/// The tokens of a text or of a pair of texts, or token ids alone.
using Row = std::vector<Token>;

/// Returns the maximum number of tokens of one row: the smaller of the model's positions and the plan's sequence
/// length.
int64_t max_input_tokens(const ServerContext&);

/// Returns the model's tokenizer. Throws ApiError 400 when it has none.
const Tokenizer& required_tokenizer(const ServerContext&);

/// Returns a row of 1 to `max_tokens` tokens as it is, and truncates a longer one if `truncate`: of one text at its
/// end, of a pair the longer text first. Special tokens stay. `field` names the text in errors. Throws ApiError: 413
/// for a row that is too long, 400 for an empty one.
Row fit_row(Row, int64_t max_tokens, bool truncate, const std::string& field);

/// Returns the tokens of a text with special tokens. A text of more than max_input_tokens() is truncated at its end if
/// `truncate`. `field` names the text in errors. Throws ApiError: 413 for a text that is too long, 400 when the model
/// has no tokenizer.
Row encode_row(const ServerContext&, const std::string& text, bool truncate, const std::string& field);
/// Encodes two texts joined as the checkpoint's tokenizer joins pairs. Truncation removes tokens of the longer text.
Row encode_row(const ServerContext&, const std::string& first, const std::string& second, bool truncate,
               const std::string& field);
/// Makes a row of token ids as they are.
Row encode_row(const ServerContext&, std::span<const int32_t> ids, bool truncate, const std::string& field);

/// Returns input_ids and attention_mask [rows, longest row], and token_type_ids if the model takes them and they are
/// not all 0.
Arrays pad_rows(const ServerContext&, std::span<const Row> rows);

/// Splits rows into batches of at most `tokens` padded tokens, with at least one row each. Returns the index of the
/// first row of each batch and the number of rows: {0, 3, 5} means rows 0..2, then 3..4.
std::vector<size_t> split_into_batches(std::span<const Row> rows, size_t tokens);

}  // namespace pm::server
