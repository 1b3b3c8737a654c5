// SPDX-License-Identifier: Apache-2.0
// Rules of which the grammar of policies is made: values, parameters, linears, norms and the keys of a block.
#pragma once
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/policy/keywords.h"
#include "worker/policy/schema/grammar.h"

namespace pm::policy {

using Keys = std::vector<Key>;

inline const Rule expression{Rule::Kind::Expression}, text{Rule::Kind::Text}, texts{Rule::Kind::Texts},
    names{Rule::Kind::Names}, sentence{Rule::Kind::Sentence},
    bias{Rule::Kind::Bias, {}, {{"from", names}, {"when", expression}, {"optional", expression}}};

inline Rule word(std::vector<std::string_view> words) { return {Rule::Kind::Word, std::move(words)}; }
inline Rule section(Keys keys) { return {Rule::Kind::Section, {}, std::move(keys)}; }
inline Rule known(std::vector<std::string_view> words) { return {Rule::Kind::Known, std::move(words)}; }
inline Rule each(Rule value) { return {Rule::Kind::Each, {}, {{"", std::move(value)}}}; }

inline Keys operator+(Keys a, Keys b) {
  for (auto& entry : b) a.push_back(std::move(entry));
  return a;
}

/// Keys whose values are expressions.
inline Keys expressions(std::initializer_list<std::string_view> names) {
  Keys keys;
  for (std::string_view name : names) keys.push_back({name, expression});
  return keys;
}

/// The keys of a parameter: `from` names it, `tie` names the parameter whose storage it may share, `optional` lets
/// the checkpoint lack it, and with `first_match` its names may be different tensors, of which the first that exists
/// is read.
inline Keys row_keys() {
  return {{"from", names}, {"tie", text}, {"when", expression}, {"optional", expression}, {"first_match", expression}};
}
inline Rule row(Keys more = {}) { return {Rule::Kind::Row, {}, row_keys() + std::move(more)}; }
inline Rule linear(Keys more = {}) {
  return row(Keys{{"bias", bias}, {"layout", word(layout_words)}, {"keep_in_fp32", word(keep_in_fp32_words)}} +
             std::move(more));
}
/// A linear of a block, whose matrix may be block-diagonal.
inline Rule projection() { return linear({{"groups", expression}}); }
inline Rule gate_up() { return linear({{"fused", word(gate_up_words)}}); }
inline Rule norm_row(Keys more = {}) {
  Keys keys{{"bias", bias}, {"kind", word(norm_words)}, {"eps", expression}, {"weight", expression}};
  keys.insert(keys.end(), more.begin(), more.end());
  return row(std::move(keys));
}

inline Keys block_keys() {
  return {{"at", names},
          {"norm", norm_row()},
          {"post_norm", norm_row()},
          {"bias", expression},
          {"layout", word(layout_words)}};
}

}  // namespace pm::policy
