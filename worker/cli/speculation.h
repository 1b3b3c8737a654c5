// SPDX-License-Identifier: Apache-2.0
// The options of speculative decoding.
#pragma once
#include <CLI/CLI.hpp>

#include <memory>
#include <optional>
#include <string>

#include "worker/engine/speculation/draft_model.h"
#include "worker/engine/speculation/drafter.h"
#include "worker/policy/spec/model.h"

namespace pm::cli {

/// --speculation, --speculation-tokens, --speculation-min-ngram and --speculation-max-ngram.
struct SpeculationOptions {
  std::string kind = "off";
  int64_t tokens = 8;
  engine::NgramLengths ngram;
  void add_to(CLI::App& subcommand);
  /// Throws Error{Usage} if the lengths of n-grams contradict each other, or if there are two drafters.
  void check(const std::string& draft_model) const;
};

/// Returns why this model cannot speculate; empty: it can.
std::string speculation_obstacle(const policy::Model&);
/// Returns what the engine of this model does: nullopt where speculation is off, or the model cannot. `draft_model` is
/// the loaded one, or nullptr.
std::optional<engine::Speculation> speculation_of(const SpeculationOptions&, const policy::Model&,
                                                  std::shared_ptr<engine::DraftModel> draft_model);
/// Returns the same for a reader: "off", "ngram", "draft model FOLDER", or "off: " with the reason why it is not as the
/// options ask for.
std::string speculation_text(const SpeculationOptions&, const policy::Model&, const std::string& draft_model);

}  // namespace pm::cli
