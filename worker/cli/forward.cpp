// The verb forward: named tensors in, named tensors out, so that anyone can check us against the original.
#include <iostream>
#include <nlohmann/json.hpp>

#include "worker/base/error.h"
#include "worker/cli/jobs.h"
#include "worker/cli/processes.h"
#include "worker/engine/sampling_json.h"

namespace pm::cli {

namespace {

struct ForwardOptions : ModelOptions {
  std::string inputs, outputs;
  bool hidden_states = false, attentions = false, by_micro_batch = false, batch = false, processes = false;
  ProcessOptions process;
};

int forward_once(const ForwardOptions& options, const Program& program) {
  if (options.model.empty() || options.inputs.empty() || options.outputs.empty()) {
    throw Error(ErrorKind::Usage, "Usage", "give --model, --inputs and --outputs, or --batch");
  }
  const Setup setup = prepare(options, options.process.plan_file());
  if (options.processes && !options.process.is_rank()) return launch_ranks(program, options.process, setup, {});
  const Arrays inputs = read_tensors(options.inputs);
  const auto run = [&](engine::Group& group) {
    write_tensors(options.outputs, run_forward(group, setup.model, setup.plan, {.id = {}, .inputs = inputs, .hidden_states = options.hidden_states, .attentions = options.attentions,
                                                                               .outputs = {}, .by_micro_batch = options.by_micro_batch}));
    return 0;
  };
  if (options.processes) return run_rank(options.process, setup.group(0), run);
  return run(*engine::local_group(setup.group(0)));
}

/// A model that stays loaded from job to job.
class Loaded {
 public:
  engine::Group& group(int64_t blocks) {
    if (!group_ || blocks > blocks_) {
      group_.reset();
      group_ = engine::local_group(setup.group(blocks));
      blocks_ = blocks;
    }
    return *group_;
  }
  explicit Loaded(const ModelOptions& options) : setup(prepare(options)) {}
  const Setup setup;

 private:
  std::unique_ptr<engine::Group> group_;
  int64_t blocks_ = 0;
};

Generation generation_of(const nlohmann::json& job) {
  Generation generation;
  generation.max_new_tokens = job.value("max_new_tokens", generation.max_new_tokens);
  generation.max_length = job.value("max_length", generation.max_length);
  generation.ignore_eos = job.value("ignore_eos", false);
  generation.max_time = job.value("max_time", 0.0);
  engine::read_sampling(job, generation.sampling);
  engine::read_search(job, generation.search);
  return generation;
}

nlohmann::json run_job(const nlohmann::json& job, Loaded& loaded) {
  const Setup& setup = loaded.setup;
  if (job.contains("generate")) {
    const auto prompts = job["generate"].at("input_ids").get<std::vector<std::vector<int32_t>>>();
    const Generation generation = generation_of(job["generate"]);
    const int64_t blocks = generation_blocks(setup.model, prompts, generation);
    nlohmann::json answer = {{"ok", true}, {"sequences", nlohmann::json::array()}, {"scores", nlohmann::json::array()}};
    for (const Sequence& sequence : run_generation(loaded.group(blocks), setup.model, setup.plan, blocks, prompts, generation)) {
      answer["sequences"].push_back(sequence.tokens);
      answer["scores"].push_back(sequence.score);
    }
    return answer;
  }
  const Arrays inputs = read_tensors(job.at("inputs").get<std::string>());
  write_tensors(job.at("outputs").get<std::string>(),
                run_forward(loaded.group(0), setup.model, setup.plan, {.id = {}, .inputs = inputs, .hidden_states = job.value("hidden_states", false),
                                                                       .attentions = job.value("attentions", false), .outputs = {}, .by_micro_batch = job.value("by_micro_batch", false)}));
  return {{"ok", true}};
}

/// One job per line, one answer per line; the last model stays loaded. A bad job costs only its own answer.
int forward_batch(const ForwardOptions& defaults) {
  std::unique_ptr<Loaded> loaded;
  std::string key;
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::json answer;
    try {
      const nlohmann::json job = nlohmann::json::parse(line);
      ModelOptions options = defaults;
      options.model = job.value("model", options.model);
      options.ranks = job.value("ranks", options.ranks);
      options.precision = job.value("precision", options.precision);
      options.strategy = job.value("strategy", options.strategy);
      options.sizes = job.value("sizes", options.sizes);
      options.offload_to = job.value("offload_to", options.offload_to);
      options.policy = job.value("policy", options.policy);
      const std::string wanted = nlohmann::json{options.model, options.ranks, options.precision, options.policy, options.strategy, options.sizes, options.offload_to}.dump();
      if (!loaded || key != wanted) {
        loaded.reset();
        loaded = std::make_unique<Loaded>(options);
        key = wanted;
      }
      answer = run_job(job, *loaded);
    } catch (const Error& error) {
      answer = {{"ok", false}, {"reason", error.reason}, {"error", error.what()}};
    } catch (const std::exception& error) {
      answer = {{"ok", false}, {"reason", "InvalidJob"}, {"error", error.what()}};
    }
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}

}  // namespace

void add_forward(CLI::App& app, Program& program) {
  auto* verb = app.add_subcommand("forward", "One forward pass over named tensors (input_ids, attention_mask, pixel_values, ...)");
  auto options = std::make_shared<ForwardOptions>();
  options->add_to(*verb);
  verb->get_option("--model")->required(false);
  verb->add_option("--inputs", options->inputs, "safetensors file with input_ids or pixel_values and, if wanted, attention_mask, token_type_ids, position_ids, decoder_input_ids");
  verb->add_option("--outputs", options->outputs, "safetensors file to write: logits, last_hidden_state, ... under Hugging Face's names");
  verb->add_flag("--hidden-states", options->hidden_states, "Also hidden_states.0 ...");
  verb->add_flag("--attentions", options->attentions, "Also attentions.0 ..., all heads");
  verb->add_flag("--by-micro-batch", options->by_micro_batch, "Outputs of each micro-batch on their own: micro_batches.0.logits ...");
  verb->add_flag("--processes", options->processes, "Ranks as processes over shared memory instead of threads");
  verb->add_flag("--batch", options->batch,
                 "Jobs as JSON lines on standard input: {\"model\", \"ranks\", \"strategy\", \"sizes\", \"offload_to\", \"inputs\", \"outputs\", \"hidden_states\", \"attentions\"} or "
                 "{\"model\", \"ranks\", \"generate\": {\"input_ids\": [[..]], \"max_new_tokens\", ..}}; one answer line each");
  options->process.add_to(*verb);
  verb->callback([options, &program] { program.code = options->batch ? forward_batch(*options) : forward_once(*options, program); });
}

}  // namespace pm::cli
