// SPDX-License-Identifier: Apache-2.0
#include "worker/cli/draft_model_files.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>

#include "contract/worker_arguments.h"
#include "planner/draft_plan.h"
#include "worker/base/error.h"
#include "worker/cli/speculation.h"
#include "worker/comm/communicator.h"
#include "worker/engine/ranks/device.h"
#include "worker/engine/speculation/draft_model.h"
#include "worker/engine/speculation/mtp_module.h"
#include "worker/models/model.h"
#include "worker/policy/resolve.h"
#include "worker/tokenizer/tokenizer.h"

#include "base/log.h"

namespace pm::cli {

namespace {

constexpr auto no_deadline = std::chrono::hours(24);  // a rank alone waits for nobody
/// One in so many ids may be another token, as the reserved ones of versions of a family are.
constexpr size_t same_tokens_per_other = 100;

/// Returns how messages about a draft model begin, or about the module where `name` is "".
std::string prefix(const std::string& name) {
  return name.empty() ? std::string(flag::speculation.name) + " " + mtp_speculation + ": "
                      : std::string(flag::draft_model.name) + " " + name + ": ";
}

/// Requires that ids mean the same tokens in both folders.
void check_tokenizers(const std::filesystem::path& draft_folder, const policy::Model& draft,
                      const std::filesystem::path& target_folder, const policy::Model& target) {
  const auto own = Tokenizer::find(draft_folder), wanted = Tokenizer::find(target_folder);
  if (!own || !wanted) {
    const int64_t vocabulary = models::Model::generating_stack(draft).vocab,
                  expected = models::Model::generating_stack(target).vocab;
    if (vocabulary == expected) return;
    throw Error(Reason::ModelUnreadable,
                "it has a vocabulary of " + std::to_string(vocabulary) + " tokens and the model one of " +
                    std::to_string(expected) + ", and " + (own ? "the model" : "it") +
                    " has no tokenizer to compare; choose a draft model of the same tokenizer");
  }
  const size_t both = std::min(own->vocab_size(), wanted->vocab_size());
  size_t others = std::max(own->vocab_size(), wanted->vocab_size()) - both, first = both;
  for (size_t id = both; id-- > 0;) {
    if (own->id_to_token(static_cast<int32_t>(id)) == wanted->id_to_token(static_cast<int32_t>(id))) continue;
    ++others;
    first = id;
  }
  if (others * same_tokens_per_other <= both) return;
  const auto spelled = [&](const Tokenizer& tokenizer) {
    return first < tokenizer.vocab_size() ? "\"" + tokenizer.id_to_token(static_cast<int32_t>(first)) + "\""
                                          : "no token";
  };
  throw Error(Reason::ModelUnreadable, "its tokenizer is not the model's: " + std::to_string(others) +
                                           " ids are other tokens, the first of them " + std::to_string(first) + ", " +
                                           spelled(*own) + " here and " + spelled(*wanted) +
                                           " there; choose a draft model of the same tokenizer");
}

/// Requires that something can be drafted for the model.
void check_target(const policy::Model& target, const std::string& name) {
  const auto refuse = [&](const std::string& why) { throw Error(Reason::ModelUnreadable, prefix(name) + why); };
  if (const std::string obstacle = speculation_obstacle(target); !obstacle.empty())
    refuse("nothing can be drafted for " + target.architecture + ": " + obstacle + "; serve it without drafts");
  if (models::Model::source_stack(target))
    refuse(target.architecture + " reads its prompt by an encoder, of which a draft model sees nothing; serve it " +
           "without one");
}

/// Makes the one rank of what drafts, and runs a token, so that one that cannot run ends the start.
std::unique_ptr<engine::Rank> load_rank(const DraftModelFiles& files, const Plan& plan, int64_t kv_blocks,
                                        at::Device device, bool graphs, const std::function<void(int64_t)>& progress) {
  const std::string what = files.is_mtp ? "the module for multi-token prediction" : "the draft model";
  const std::string name = files.folder().string();
  auto rank = engine::with_memory_errors(device, "while " + what + " of " + name + " was loaded", nullptr, [&] {
    return std::make_unique<engine::Rank>(parallel::make_executor({.checkpoint = &files.checkpoint,
                                                                   .model = &files.model,
                                                                   .plan = &plan,
                                                                   .kv_blocks = kv_blocks,
                                                                   .communicator = comm::in_process(1, no_deadline)[0],
                                                                   .progress = progress,
                                                                   .device = device,
                                                                   .graphs = graphs}));
  });
  engine::StepMessage one_token;
  one_token.entries.push_back(
      {.slot = 0, .reset_table = true, .tokens = {0}, .blocks = {0}, .output_kind = engine::OutputKind::Argmax});
  rank->run(one_token, files.is_mtp ? at::zeros({1, files.model.stacks.back().hidden}, device) : at::Tensor());
  LOG(INFO) << what << " of " << name << ": " << rank->executor().weight_bytes() << " bytes of weights and "
            << rank->executor().kv_bytes() << " of KV blocks on " << device << ", texts of at most "
            << plan.sequence_length << " tokens";
  return rank;
}

}  // namespace

policy::Model mtp_module(const checkpoint::Checkpoint& checkpoint, const std::string& policy,
                         const policy::Model& target) {
  check_target(target, "");
  try {
    policy::Model module = policy::resolve_mtp(checkpoint, policy);
    models::Model::check(module);
    return module;
  } catch (const Error& error) {
    throw Error(error.reason, prefix("") + error.what());
  }
}

std::shared_ptr<const DraftModelFiles> open_mtp_module(const std::filesystem::path& folder, const std::string& policy,
                                                       const policy::Model& target) {
  auto files = std::make_shared<DraftModelFiles>(
      DraftModelFiles{.checkpoint = checkpoint::Checkpoint::open(folder), .model = {}, .is_mtp = true});
  files->model = mtp_module(files->checkpoint, policy, target);
  return files;
}

void check_drafts_for(const policy::Model& draft, const std::string& name, const policy::Model& target) {
  check_target(target, name);
  const auto refuse = [&](const std::string& why) { throw Error(Reason::ModelUnreadable, prefix(name) + why); };
  if (const std::string obstacle = speculation_obstacle(draft); !obstacle.empty())
    refuse(draft.architecture + " cannot draft: " + obstacle);
  if (models::Model::source_stack(draft)) refuse(draft.architecture + " cannot draft: it reads prompts by an encoder");
}

std::shared_ptr<const DraftModelFiles> open_draft_model(const std::string& folder, const policy::Model& target,
                                                        const std::filesystem::path& target_folder) {
  std::shared_ptr<DraftModelFiles> files;
  try {
    files = std::make_shared<DraftModelFiles>(
        DraftModelFiles{.checkpoint = checkpoint::Checkpoint::open(folder), .model = {}});
    files->model = policy::resolve(files->checkpoint);
    models::Model::check(files->model);
  } catch (const Error& error) {
    throw Error(error.reason, prefix(folder) + error.what());
  }
  check_drafts_for(files->model, folder, target);
  try {
    check_tokenizers(files->folder(), files->model, target_folder, target);
  } catch (const Error& error) {
    throw Error(error.reason, prefix(folder) + error.what());
  }
  return files;
}

DraftNeeds needs_of(const policy::Model& draft, const std::string& name) {
  try {
    return draft_needs(draft.metadata);
  } catch (const std::invalid_argument& error) {
    throw Error(Reason::ModelUnreadable, prefix(name) + error.what());
  }
}

engine::Speculation load_drafter(const DraftModelFiles& files, const policy::Model& target, int64_t sequence_length,
                                 int64_t kv_blocks, at::Device device, bool graphs,
                                 const std::function<void(int64_t)>& progress) {
  const Plan plan = draft_plan(files.model.metadata, sequence_length);
  auto rank = load_rank(files, plan, kv_blocks, device, graphs, progress);
  const policy::Stack& stack = models::Model::generating_stack(files.model);
  // beyond its short factors a text would have to be computed again
  const int64_t short_rope = policy::short_rope_tokens(stack),
                positions = short_rope > 0 ? std::min(plan.sequence_length, short_rope) : plan.sequence_length;
  if (files.is_mtp) {
    const engine::MtpModule::Limits limits{
        .vocabulary = stack.vocab, .positions = positions, .kv_blocks = kv_blocks, .step_tokens = plan.step_tokens};
    const auto module = std::make_shared<engine::MtpModule>(std::move(rank), limits);
    return {.make_drafter = [module] { return engine::MtpModule::drafter(module); }, .reads_states = true};
  }
  const engine::DraftModel::Limits limits{.vocabulary = stack.vocab,
                                          .target_vocabulary = models::Model::generating_stack(target).vocab,
                                          .positions = positions,
                                          .kv_blocks = kv_blocks,
                                          .step_tokens = plan.step_tokens};
  const auto model = std::make_shared<engine::DraftModel>(std::move(rank), limits);
  return {.make_drafter = [model] { return engine::DraftModel::drafter(model); }};
}

}  // namespace pm::cli
