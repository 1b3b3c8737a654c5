// SPDX-License-Identifier: Apache-2.0
// The subcommand forward: it runs forward passes over named tensors in files, so that anyone can compare the outputs
// with those of transformers.
#include <iostream>
#include <nlohmann/json.hpp>

#include "worker/base/error.h"
#include "worker/cli/offline_inference.h"
#include "worker/cli/processes.h"
#include "worker/engine/sampling/sampling_json.h"

namespace pm::cli {

namespace {

struct ForwardOptions : ModelOptions {
  std::string inputs, outputs;
  bool hidden_states = false, attentions = false, by_micro_batch = false, batch = false, processes = false;
  ProcessOptions process;
};

int forward_once(const ForwardOptions& options, const Program& program) {
  if (options.model.empty() || options.inputs.empty() || options.outputs.empty()) {
    throw Error(Reason::Usage, "give --model, --inputs and --outputs, or --batch");
  }
  const Setup setup = prepare(options, options.process.plan_file());
  if (options.processes && !options.process.is_rank()) return launch_ranks(program, options.process, setup, {});
  const Arrays inputs = read_tensors(options.inputs);
  const std::string adapter = options.adapters.empty() ? "" : options.adapters.front();
  const auto run = [&](engine::RankGroup& group) {
    write_tensors(options.outputs, run_forward(group, setup.model, setup.plan,
                                               {.id = {},
                                                .inputs = inputs,
                                                .hidden_states = options.hidden_states,
                                                .attentions = options.attentions,
                                                .outputs = {},
                                                .by_micro_batch = options.by_micro_batch},
                                               setup.adapters, adapter));
    return 0;
  };
  if (options.processes) return run_rank(options.process, setup.group(0), run);
  return run(*engine::local_rank_group(setup.group(0)));
}

/// A model that stays loaded between jobs.
class LoadedModel {
 public:
  engine::RankGroup& group(int64_t blocks) {
    if (!group_ || blocks > blocks_) {
      group_.reset();
      group_ = engine::local_rank_group(setup.group(blocks));
      blocks_ = blocks;
    }
    return *group_;
  }
  explicit LoadedModel(const ModelOptions& options) : setup(prepare(options)) {}
  const Setup setup;

 private:
  std::unique_ptr<engine::RankGroup> group_;
  int64_t blocks_ = 0;
};

/// Returns the folders of the adapters of a job: one for each prompt, or one for a forward pass. "" is the base model.
std::vector<std::string> adapters_of(const nlohmann::json& job) {
  return job.value("adapters", std::vector<std::string>());
}

nlohmann::json run_job(const nlohmann::json& job, LoadedModel& loaded) {
  const Setup& setup = loaded.setup;
  const std::vector<std::string> adapters = adapters_of(job);
  if (job.contains("generate")) {
    std::vector<Prompt> prompts;
    if (job.contains("inputs")) {
      for (const auto& file : job["inputs"].get<std::vector<std::string>>())
        for (Prompt& prompt : prompts_of(read_tensors(file))) prompts.push_back(std::move(prompt));
    } else {
      for (auto& ids : job["generate"].at("input_ids").get<std::vector<std::vector<int32_t>>>())
        prompts.push_back({std::move(ids), {}});
    }
    if (!adapters.empty() && adapters.size() != prompts.size())
      throw Error(Reason::InvalidJob,
                  std::to_string(adapters.size()) + " adapters for " + std::to_string(prompts.size()) + " prompts");
    for (size_t i = 0; !adapters.empty() && i < prompts.size(); ++i) prompts[i].adapter = adapters.at(i);
    const engine::GenerationConfig generation = engine::read_generation_config(job["generate"]);
    const int64_t blocks = generation_blocks(setup.model, prompts, generation);
    nlohmann::json answer = {{"ok", true}, {"sequences", nlohmann::json::array()}, {"scores", nlohmann::json::array()}};
    for (const GeneratedSequence& sequence : run_generation(loaded.group(blocks), setup.model, setup.plan, blocks,
                                                            prompts, generation, nullptr, setup.adapters)) {
      answer["sequences"].push_back(sequence.tokens);
      answer["scores"].push_back(sequence.score);
    }
    return answer;
  }
  const Arrays inputs = read_tensors(job.at("inputs").get<std::string>());
  write_tensors(job.at("outputs").get<std::string>(),
                run_forward(loaded.group(0), setup.model, setup.plan,
                            {.id = {},
                             .inputs = inputs,
                             .hidden_states = job.value("hidden_states", false),
                             .attentions = job.value("attentions", false),
                             .outputs = {},
                             .by_micro_batch = job.value("by_micro_batch", false)},
                            setup.adapters, adapters.empty() ? "" : adapters.front()));
  return {{"ok", true}};
}

/// Reads one job a line and writes one result a line. The last model stays loaded, and an invalid job fails alone.
int forward_batch(const ForwardOptions& defaults) {
  std::unique_ptr<LoadedModel> loaded;
  std::string key;
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::json answer;
    try {
      const nlohmann::json job = nlohmann::json::parse(line);
      ModelOptions options = defaults;
      options.model = job.value("model", options.model);
      options.ranks = job.value("ranks", options.ranks);
      options.precision = job.value("precision", options.precision);
      options.kv_precision = job.value("kv_precision", options.kv_precision);
      options.strategy = job.value("strategy", options.strategy);
      options.sizes = job.value("sizes", options.sizes);
      options.offload_to = job.value("offload_to", options.offload_to);
      options.policy = job.value("policy", options.policy);
      options.adapters = adapters_of(job);
      const std::string wanted =
          nlohmann::json{options.adapters, options.model,    options.ranks, options.precision, options.kv_precision,
                         options.policy,   options.strategy, options.sizes, options.offload_to}
              .dump();
      if (!loaded || key != wanted) {
        loaded.reset();
        loaded = std::make_unique<LoadedModel>(options);
        key = wanted;
      }
      answer = run_job(job, *loaded);
    } catch (const Error& error) {
      answer = {{"ok", false}, {"reason", error.reason}, {"error", error.what()}};
    } catch (const std::exception& error) {
      answer = {{"ok", false}, {"reason", Reason::InvalidJob}, {"error", error.what()}};
    }
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}

}  // namespace

void add_forward(CLI::App& app, Program& program) {
  auto* subcommand = app.add_subcommand(
      "forward", "Runs one forward pass over named tensors (input_ids, attention_mask, pixel_values, ...)");
  auto options = std::make_shared<ForwardOptions>();
  options->add_to(*subcommand);
  subcommand->get_option("--model")->required(false);
  subcommand->add_option(
      "--inputs", options->inputs,
      "safetensors file with input_ids or pixel_values and optionally attention_mask, token_type_ids, "
      "position_ids, decoder_input_ids");
  subcommand->add_option("--outputs", options->outputs,
                         "safetensors file to write: logits, last_hidden_state, ... under Hugging Face's names");
  subcommand->add_flag("--hidden-states", options->hidden_states, "Also write hidden_states.0, ...");
  subcommand->add_flag("--attentions", options->attentions, "Also write attentions.0, ... of all heads");
  subcommand->add_flag("--by-micro-batch", options->by_micro_batch,
                       "Write the outputs of each micro-batch separately: micro_batches.0.logits, ...");
  subcommand
      ->add_option("--adapter", options->adapters, "Folder of a LoRA adapter (PEFT) that the rows of all inputs get")
      ->expected(1);
  subcommand->add_flag("--processes", options->processes,
                       "Run ranks as processes over shared memory instead of threads");
  subcommand->add_flag(
      "--batch", options->batch,
      "Read jobs as JSON lines from standard input: {\"model\", \"ranks\", \"strategy\", \"sizes\", \"offload_to\", "
      "\"adapters\": [folders], \"inputs\", \"outputs\", \"hidden_states\", \"attentions\"} or "
      "{\"model\", \"ranks\", \"generate\": {\"input_ids\": [[..]], \"max_new_tokens\", ..}}, with \"inputs\": [files] "
      "in "
      "place of ids for encoders of images or audio; one result line each");
  options->process.add_to(*subcommand);
  subcommand->callback([options, &program] {
    program.code = options->batch ? forward_batch(*options) : forward_once(*options, program);
  });
}

}  // namespace pm::cli
