// SPDX-License-Identifier: Apache-2.0
// Prints what the module for multi-token prediction of a checkpoint drafts behind each beginning of a text, for the
// tests that compare with transformers: drafts_dump FOLDER COUNT FIRST TOKEN... reads the first FIRST tokens at once,
// the others one by one, and prints a list of COUNT tokens behind each beginning from then on.
#include <ATen/ATen.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "planner/draft_plan.h"
#include "worker/cli/draft_model_files.h"
#include "worker/comm/communicator.h"
#include "worker/engine/ranks/rank.h"
#include "worker/policy/resolve.h"

using namespace pm;

namespace {

nlohmann::json drafts_of(const std::string& folder, int64_t count, size_t first, const std::vector<int32_t>& text) {
  const auto checkpoint = checkpoint::Checkpoint::open(folder);
  const policy::Model model = policy::resolve(checkpoint);
  const auto files = cli::open_mtp_module(folder, "", model);
  const auto ignore = [](int64_t) {};
  const std::unique_ptr<engine::Drafter> drafter =
      cli::load_drafter(*files, model, 0, 64, at::kCPU, false, ignore).make_drafter();
  const Plan plan = draft_plan(model.metadata);
  engine::Rank rank(parallel::make_executor({.checkpoint = &checkpoint,
                                             .model = &model,
                                             .plan = &plan,
                                             .kv_blocks = 64,
                                             .communicator = comm::in_process(1, std::chrono::hours(1))[0],
                                             .progress = ignore,
                                             .device = at::kCPU,
                                             .graphs = false}));
  const engine::SamplingParams greedy;
  nlohmann::json all = nlohmann::json::array();
  for (size_t known = 0; known + 1 < text.size();) {
    const size_t rows = known == 0 ? first : 1;
    engine::StepMessage message;
    engine::StepEntry entry{.slot = 0, .reset_table = known == 0, .context = static_cast<int64_t>(known)};
    entry.tokens.assign(text.begin() + static_cast<std::ptrdiff_t>(known),
                        text.begin() + static_cast<std::ptrdiff_t>(known + rows));
    for (int32_t block = 0; known == 0 && block < 64; ++block) entry.blocks.push_back(block);
    entry.states = true;
    message.entries.push_back(std::move(entry));
    const at::Tensor states = rank.run(message).states;
    const std::vector<int32_t> beginning(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(known + rows + 1));
    const engine::TokenStates seen{.slot = 7,
                                   .tokens = beginning,
                                   .prompt = static_cast<int64_t>(first),
                                   .first = static_cast<int64_t>(known),
                                   .rows = states};
    drafter->observe({&seen, 1});
    const engine::DraftRequest request{
        .slot = 7, .tokens = beginning, .count = count, .prompt = 1, .sampling = &greedy};
    all.push_back(drafter->propose({&request, 1}).tokens.at(0));
    known += rows;
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    std::vector<int32_t> text;
    for (size_t i = 3; i < arguments.size(); ++i) text.push_back(std::stoi(arguments[i]));
    std::cout << drafts_of(arguments.at(0), std::stoll(arguments.at(1)), std::stoul(arguments.at(2)), text) << "\n";
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
