// SPDX-License-Identifier: Apache-2.0
// The subcommand generate: it generates from texts or token ids on the command line.
#include <iostream>
#include <nlohmann/json.hpp>

#include "worker/base/error.h"
#include "worker/cli/generation_flags.h"
#include "worker/cli/offline_inference.h"
#include "worker/cli/options.h"
#include "worker/tokenizer/tokenizer.h"

namespace pm::cli {

namespace {

struct GenerateOptions : ModelOptions {
  std::vector<std::string> prompts, id_lists;
  engine::ParameterValues generation;
  std::vector<std::string> bad_words;
  bool json = false;
};

std::vector<int32_t> ids_of(const std::string& list, const std::string& option = "--input-ids") {
  std::vector<int32_t> ids;
  std::stringstream in(list);
  for (std::string item; std::getline(in, item, ',');) {
    try {
      size_t used = 0;
      ids.push_back(std::stoi(item, &used));
      if (used != item.size()) throw std::invalid_argument(item);
    } catch (const std::exception&) {
      throw Error(Reason::Usage,
                  option + " \"" + list + "\": \"" + item + "\" is not a token id; write e.g. 464,3290,318");
    }
  }
  return ids;
}

int generate(const GenerateOptions& options) {
  const Setup setup = prepare(options);
  std::string why;
  const std::optional<Tokenizer> tokenizer = Tokenizer::find(setup.checkpoint.folder(), &why);
  if (!options.prompts.empty() && !tokenizer)
    throw Error(Reason::Usage, "--prompt needs a tokenizer, and " + why + "; give --input-ids");
  std::vector<std::vector<int32_t>> prompts;
  for (const std::string& prompt : options.prompts) prompts.push_back(tokenizer->encode(prompt));
  for (const std::string& list : options.id_lists) prompts.push_back(ids_of(list));
  if (prompts.empty()) throw Error(Reason::Usage, "no prompt was given; use --prompt or --input-ids");

  engine::GenerationConfig generation = generation_config(options.generation);
  for (const std::string& list : options.bad_words)
    generation.sampling.bad_words.push_back(ids_of(list, "--bad-words-ids"));
  const int64_t blocks = generation_blocks(setup.model, prompts, generation);
  const auto group = engine::local_rank_group(setup.group(blocks));
  std::vector<std::vector<int32_t>> sequences;
  std::vector<double> scores;
  for (GeneratedSequence& sequence : run_generation(*group, setup.model, setup.plan, blocks, prompts, generation)) {
    sequences.push_back(std::move(sequence.tokens));
    scores.push_back(sequence.score);
  }
  nlohmann::json texts = nlohmann::json::array();
  for (const auto& sequence : sequences)
    if (tokenizer) texts.push_back(tokenizer->decode(sequence));
  if (options.json) {
    nlohmann::json out{{"text", texts}, {"sequences", sequences}};
    if (generation.search.num_beams > 1) out["scores"] = scores;
    std::cout << out.dump() << "\n";
  } else {
    for (size_t row = 0; row < sequences.size(); ++row) {
      std::cout << (tokenizer ? texts[row].get<std::string>() : nlohmann::json(sequences[row]).dump()) << "\n";
    }
  }
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Program& program) {
  auto* subcommand =
      app.add_subcommand("generate", "Generates from prompts; parameters have Hugging Face's names and meanings");
  auto options = std::make_shared<GenerateOptions>();
  options->add_to(*subcommand);
  subcommand->add_option("--prompt", options->prompts, "Text to continue; may be given several times");
  subcommand->add_option("--input-ids", options->id_lists,
                         "Token ids to continue, e.g. 464,3290,318; may be given several times");
  add_generation_flags(*subcommand, options->generation);
  subcommand->add_option("--bad-words-ids", options->bad_words,
                         "Sequence of token ids that must not be generated, e.g. 464,3290; may be given several times");
  subcommand->add_flag("--json", options->json,
                       R"(Prints {"text": [...], "sequences": [[ids]]}, with beams also "scores")");
  subcommand->callback([options, &program] { program.code = generate(*options); });
}

}  // namespace pm::cli
