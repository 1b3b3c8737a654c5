// The verb generate: text or ids in, text or ids out.
#include <iostream>
#include <nlohmann/json.hpp>

#include "worker/base/error.h"
#include "worker/cli/jobs.h"
#include "worker/cli/options.h"
#include "worker/tokenizer/tokenizer.h"

namespace pm::cli {

namespace {

struct GenerateOptions : ModelOptions {
  std::vector<std::string> prompts, id_lists;
  Generation generation;
  std::vector<std::string> bad_words;
  bool json = false;
};

engine::EarlyStopping early_stopping_of(const std::string& word) {
  return word == "never" ? engine::EarlyStopping::Never : word == "true" ? engine::EarlyStopping::Yes : engine::EarlyStopping::No;
}

std::vector<int32_t> ids_of(const std::string& list, const std::string& option = "--input-ids") {
  std::vector<int32_t> ids;
  std::stringstream in(list);
  for (std::string item; std::getline(in, item, ',');) {
    try {
      size_t used = 0;
      ids.push_back(std::stoi(item, &used));
      if (used != item.size()) throw std::invalid_argument(item);
    } catch (const std::exception&) {
      throw Error(ErrorKind::Usage, "Usage", option + " \"" + list + "\": \"" + item + "\" is not a token id; write e.g. 464,3290,318");
    }
  }
  return ids;
}

int generate(const GenerateOptions& options) {
  const Setup setup = prepare(options);
  std::string why;
  const std::optional<Tokenizer> tokenizer = Tokenizer::find(setup.checkpoint.folder(), &why);
  if (!options.prompts.empty() && !tokenizer) throw Error(ErrorKind::Usage, "Usage", "--prompt needs a tokenizer, and " + why + "; give --input-ids");
  std::vector<std::vector<int32_t>> prompts;
  for (const std::string& prompt : options.prompts) prompts.push_back(tokenizer->encode(prompt));
  for (const std::string& list : options.id_lists) prompts.push_back(ids_of(list));
  if (prompts.empty()) throw Error(ErrorKind::Usage, "Usage", "nothing to generate from: give --prompt or --input-ids");

  Generation generation = options.generation;
  for (const std::string& list : options.bad_words) generation.sampling.bad_words.push_back(ids_of(list, "--bad-words-ids"));
  const int64_t blocks = generation_blocks(setup.model, prompts, generation);
  const auto group = engine::local_group(setup.group(blocks));
  std::vector<std::vector<int32_t>> sequences;
  std::vector<double> scores;
  for (Sequence& sequence : run_generation(*group, setup.model, setup.plan, blocks, prompts, generation)) {
    sequences.push_back(std::move(sequence.tokens));
    scores.push_back(sequence.score);
  }
  nlohmann::json texts = nlohmann::json::array();
  for (const auto& sequence : sequences) if (tokenizer) texts.push_back(tokenizer->decode(sequence));
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
  auto* verb = app.add_subcommand("generate", "Generates from prompts; parameters have Hugging Face's names and meanings");
  auto options = std::make_shared<GenerateOptions>();
  options->add_to(*verb);
  verb->add_option("--prompt", options->prompts, "Text to continue; may be given several times");
  verb->add_option("--input-ids", options->id_lists, "Token ids to continue, e.g. 464,3290,318; may be given several times");
  Generation& generation = options->generation;
  verb->add_option("--max-new-tokens", generation.max_new_tokens, "Most tokens to generate")->check(CLI::PositiveNumber);
  verb->add_option("--max-length", generation.max_length, "Most tokens of prompt and answer together")->check(CLI::PositiveNumber);
  verb->add_flag("--do-sample", generation.sampling.do_sample, "Draw tokens instead of taking the most likely");
  verb->add_option("--temperature", generation.sampling.temperature, "Divides the scores before drawing")->check(CLI::PositiveNumber);
  verb->add_option("--top-k", generation.sampling.top_k, "Draw from the k most likely; 0: from all")->check(CLI::NonNegativeNumber);
  verb->add_option("--top-p", generation.sampling.top_p, "Draw from the most likely that together reach p")->check(CLI::Range(0.0, 1.0));
  verb->add_option("--min-p", generation.sampling.min_p, "Draw from tokens at least so likely, as a share of the best")->check(CLI::Range(0.0, 1.0));
  verb->add_option("--typical-p", generation.sampling.typical_p, "Draw from the most typical that together reach p")->check(CLI::Range(0.0, 1.0));
  verb->add_option("--repetition-penalty", generation.sampling.repetition_penalty, "Above 1: tokens of prompt and answer become less likely")->check(CLI::PositiveNumber);
  verb->add_option("--presence-penalty", generation.sampling.presence_penalty, "Taken off the scores of tokens that the answer has")->check(CLI::Range(-2.0, 2.0));
  verb->add_option("--frequency-penalty", generation.sampling.frequency_penalty, "Taken off once for each time that the answer has a token")->check(CLI::Range(-2.0, 2.0));
  verb->add_option("--no-repeat-ngram-size", generation.sampling.no_repeat_ngram_size, "No n tokens in a row come twice")->check(CLI::NonNegativeNumber);
  verb->add_option("--num-beams", generation.search.num_beams, "Beams to search with; 1: none")->check(CLI::Range(1, 256));
  verb->add_option("--num-return-sequences", generation.search.num_return_sequences, "Answers to each prompt: the best beams, or so many drawn")->check(CLI::Range(1, 256));
  verb->add_option_function<std::string>("--early-stopping", [options](const std::string& word) { options->generation.search.early_stopping = early_stopping_of(word); },
                                         "true: the search ends with as many finished beams as there are; never: when none can get better")
      ->check(CLI::IsMember({"true", "false", "never"}));
  verb->add_option("--length-penalty", generation.search.length_penalty, "A beam's score is divided by its length to this power");
  verb->add_option("--bad-words-ids", options->bad_words, "Token ids that must not come in a row, e.g. 464,3290; may be given several times");
  verb->add_option("--min-length", generation.min_length, "No end token before prompt and answer together are so long")->check(CLI::NonNegativeNumber);
  verb->add_option("--max-time", generation.max_time, "Seconds after which no token is begun")->check(CLI::PositiveNumber);
  verb->add_option("--min-new-tokens", generation.sampling.min_new_tokens, "No end token before")->check(CLI::NonNegativeNumber);
  verb->add_option("--forced-bos-token-id", generation.sampling.forced_bos, "The second token of a sequence: of a translation the language")->check(CLI::NonNegativeNumber);
  verb->add_option("--forced-eos-token-id", generation.sampling.forced_eos, "The last of as many tokens as are asked for")->check(CLI::NonNegativeNumber);
  verb->add_option("--seed", generation.sampling.seed, "Of drawing; the same seed gives the same tokens on any number of ranks");
  verb->add_flag("--ignore-eos", generation.ignore_eos, "Go on after an end token");
  verb->add_flag("--json", options->json, R"(Prints {"text": [...], "sequences": [[ids]]}, with beams also "scores")");
  verb->callback([options, &program] { program.code = generate(*options); });
}

}  // namespace pm::cli
