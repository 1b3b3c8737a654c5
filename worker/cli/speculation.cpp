// SPDX-License-Identifier: Apache-2.0
#include "worker/cli/speculation.h"

#include "contract/worker_arguments.h"
#include "worker/base/error.h"
#include "worker/models/model.h"

namespace pm::cli {

void SpeculationOptions::add_to(CLI::App& subcommand) {
  subcommand
      .add_option(flag::speculation.name, kind,
                  "Speculative decoding, which changes no token: ngram looks up what followed the last tokens earlier "
                  "in the same sequence")
      ->capture_default_str()
      ->check(CLI::IsMember({"off", "ngram"}));
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

void SpeculationOptions::check(const std::string& draft_model) const {
  if (ngram.min > ngram.max)
    throw Error(Reason::Usage, "--speculation-min-ngram is " + std::to_string(ngram.min) +
                                   " and --speculation-max-ngram " + std::to_string(ngram.max) +
                                   "; the minimum must not exceed the maximum");
  if (kind != "off" && !draft_model.empty())
    throw Error(Reason::Usage,
                "--speculation " + kind + " and --draft-model " + draft_model + " are given; omit one of them");
}

std::string speculation_obstacle(const policy::Model& model) {
  if (!models::Model::generates(model)) return "the model does not generate";
  if (model.recompute) return "the model computes each sequence from its beginning for every token";
  if (policy::is_recurrent(models::Model::generating_stack(model)))
    return "the model has recurrent layers, whose states cannot go back before rejected drafts";
  if (model.retrieval) return "the model samples from several inputs of its encoder at once";
  return {};
}

std::optional<engine::Speculation> speculation_of(const SpeculationOptions& options, const policy::Model& model,
                                                  std::shared_ptr<engine::DraftModel> draft_model) {
  if (draft_model)
    return engine::Speculation{options.tokens, [draft_model] { return engine::DraftModel::drafter(draft_model); }};
  if (options.kind == "off" || !speculation_obstacle(model).empty()) return std::nullopt;
  return engine::Speculation{options.tokens, [lengths = options.ngram] { return engine::ngram_drafter(lengths); }};
}

std::string speculation_text(const SpeculationOptions& options, const policy::Model& model,
                             const std::string& draft_model) {
  if (!draft_model.empty()) return "draft model " + draft_model;
  if (options.kind == "off") return options.kind;
  const std::string obstacle = speculation_obstacle(model);
  return obstacle.empty() ? options.kind : "off: " + obstacle;
}

}  // namespace pm::cli
