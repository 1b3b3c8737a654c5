// SPDX-License-Identifier: Apache-2.0
#include "worker/cli/speculation.h"

#include "contract/worker_arguments.h"
#include "worker/base/error.h"
#include "worker/models/model.h"

namespace pm::cli {

void DrafterOptions::add_to(CLI::App& subcommand, const std::string& folders) {
  subcommand
      .add_option(flag::speculation.name, kind,
                  "Speculative decoding, which changes no token: ngram looks up what followed the last tokens earlier "
                  "in the same sequence; mtp takes the checkpoint's own module for multi-token prediction, which is "
                  "loaded whole on rank 0")
      ->capture_default_str()
      ->check(CLI::IsMember({"off", "ngram", mtp_speculation}));
  subcommand.add_option(flag::draft_model.name, draft_model,
                        folders +
                            " of a small checkpoint with the same tokenizer, which drafts tokens (speculative "
                            "decoding); it is loaded whole on rank 0");
}

void DrafterOptions::check() const {
  if (kind != "off" && !draft_model.empty())
    throw Error(Reason::Usage,
                "--speculation " + kind + " and --draft-model " + draft_model + " are given; omit one of them");
}

void SpeculationOptions::add_to(CLI::App& subcommand) {
  subcommand.add_option("--speculation-tokens", tokens, "Maximum drafted tokens of a sequence in a step")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  subcommand.add_option("--speculation-min-ngram", ngram.min, "Minimum tokens that must be the same for a draft")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  subcommand.add_option("--speculation-max-ngram", ngram.max, "Maximum tokens that are looked up for a draft")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
}

void SpeculationOptions::check() const {
  if (ngram.min > ngram.max)
    throw Error(Reason::Usage, "--speculation-min-ngram is " + std::to_string(ngram.min) +
                                   " and --speculation-max-ngram " + std::to_string(ngram.max) +
                                   "; the minimum must not exceed the maximum");
}

std::string speculation_obstacle(const policy::Model& model) {
  if (!models::Model::generates(model)) return "the model does not generate";
  if (model.recompute) return "the model computes each sequence from its beginning for every token";
  if (policy::is_recurrent(models::Model::generating_stack(model)))
    return "the model has recurrent layers, whose states cannot go back before rejected drafts";
  if (model.retrieval) return "the model samples from several inputs of its encoder at once";
  return {};
}

std::optional<engine::Speculation> speculation_of(const SpeculationOptions& options, const DrafterOptions& drafter,
                                                  const policy::Model& model,
                                                  std::optional<engine::Speculation> loaded) {
  if (loaded) {
    loaded->tokens = options.tokens;
    return loaded;
  }
  if (drafter.kind == "off" || !speculation_obstacle(model).empty()) return std::nullopt;
  return engine::Speculation{.tokens = options.tokens,
                             .make_drafter = [lengths = options.ngram] { return engine::ngram_drafter(lengths); }};
}

std::string speculation_text(const DrafterOptions& drafter, const policy::Model& model) {
  if (!drafter.draft_model.empty()) return "draft model " + drafter.draft_model;
  if (drafter.kind == "off") return drafter.kind;
  const std::string obstacle = speculation_obstacle(model);
  return obstacle.empty() ? drafter.kind : "off: " + obstacle;
}

}  // namespace pm::cli
