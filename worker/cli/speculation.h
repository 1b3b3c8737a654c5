// SPDX-License-Identifier: Apache-2.0
// The options of speculative decoding.
#pragma once
#include <CLI/CLI.hpp>

#include <optional>
#include <string>

#include "worker/engine/speculation/drafter.h"
#include "worker/policy/spec/model.h"

namespace pm::cli {

/// The value of --speculation with which the checkpoint's own module for multi-token prediction drafts.
inline constexpr const char* mtp_speculation = "mtp";

/// --speculation and --draft-model: what drafts.
struct DrafterOptions {
  std::string kind = "off";
  std::string draft_model;  ///< folder; empty: none
  void add_to(CLI::App& subcommand, const std::string& folders = "Folder");
  bool is_mtp() const { return kind == mtp_speculation; }
  /// Throws Error{Usage} if there are two drafters.
  void check() const;
};

/// --speculation-tokens, --speculation-min-ngram and --speculation-max-ngram.
struct SpeculationOptions {
  int64_t tokens = 8;
  engine::NgramLengths ngram;
  void add_to(CLI::App& subcommand);
  /// Throws Error{Usage} if the lengths of n-grams contradict each other.
  void check() const;
};

/// Returns why this model cannot speculate; empty: it can.
std::string speculation_obstacle(const policy::Model&);
/// Returns what the engine of this model does: nullopt where speculation is off, or the model cannot. `loaded` makes
/// the drafters of what was loaded beside the model; nullopt: nothing was.
std::optional<engine::Speculation> speculation_of(const SpeculationOptions&, const DrafterOptions&,
                                                  const policy::Model&, std::optional<engine::Speculation> loaded);
/// Returns the same for a reader: "off", "ngram", "mtp", "draft model FOLDER", or "off: " with the reason why it is not
/// as the options ask for.
std::string speculation_text(const DrafterOptions&, const policy::Model&);

}  // namespace pm::cli
