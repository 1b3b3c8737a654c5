// SPDX-License-Identifier: Apache-2.0
#include "worker/server/serving/logit_score.h"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "worker/server/serving/folder_json.h"

namespace pm::server {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using Names = std::set<std::string>;

const char* const transformer_file = "sentence_bert_config.json";

[[noreturn]] void refuse(const std::string& message) { throw Error(Reason::ModelUnreadable, message); }

std::string joined(const Names& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

/// Refuses keys of `object` that are not `known`. `place` names the object in messages.
void check_keys(const json& object, const std::string& place, const Names& known) {
  for (const auto& [key, value] : object.items())
    if (!known.contains(key))
      refuse(place + " has " + key + ", which is not supported; supported are " + joined(known));
}

/// Returns whether a value leaves an option at rest.
bool is_unset(const json& value) { return value.is_null() || value == false || value.empty(); }

/// Refuses options of `object` that are in `names` and set.
void refuse_set(const json& object, const std::string& place, const Names& names) {
  for (const std::string& name : names)
    if (const auto found = object.find(name); found != object.end() && !is_unset(*found))
      refuse(place + " has " + name + " " + found->dump().substr(0, 80) + ", which is not supported; leave it out");
}

std::string kind_of(const json& module) {
  const auto type = value_of<std::string>(module, "type", "");
  return type.substr(type.rfind('.') + 1);
}

/// Returns how many tokens the model scores; 0 for one that scores no token behind a text.
int64_t vocabulary_of(const policy::Model& model) {
  if (!model.generates() || model.task != policy::Task::Generate || model.kind != policy::ModelKind::Decoder ||
      model.stacks.size() != 1)
    return 0;
  for (const policy::Head& head : model.heads)
    if (head.as<policy::LogitsSpec>() && !head.pool() && !head.streams && !head.entities) return head.scores();
  return 0;
}

std::optional<int32_t> read_token(const json& config, const std::string& file, const char* key, int64_t vocabulary) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (!found->is_number_integer())
    refuse(file + " has " + key + " " + found->dump().substr(0, 80) + "; expected an id");
  const auto id = found->get<int64_t>();
  if (id < 0 || id >= vocabulary)
    refuse(file + " has " + key + " " + std::to_string(id) +
           ", which is not in the vocabulary; expected an id from 0 to " + std::to_string(vocabulary - 1));
  return static_cast<int32_t>(id);
}

/// Reads the configuration of the module itself.
LogitScore read_module(const json& config, const std::string& file, int64_t vocabulary) {
  if (!config.is_object()) refuse(file + " is missing or no object; it has to name the true_token_id of LogitScore");
  check_keys(config, file, {"true_token_id", "false_token_id", "module_input_name"});
  if (const auto input = value_of<std::string>(config, "module_input_name", "causal_logits"); input != "causal_logits")
    refuse(file + " has module_input_name " + input + "; only causal_logits is supported");
  const auto token = read_token(config, file, "true_token_id", vocabulary);
  if (!token) refuse(file + " has no true_token_id, the id of the token whose logit is the score");
  LogitScore score;
  score.true_token = *token;
  score.false_token = read_token(config, file, "false_token_id", vocabulary);
  return score;
}

/// Reads how messages are given to the chat template, and checks that it shows both texts of a pair.
PairTemplate read_template(const std::filesystem::path& folder, const json& format, const json& options) {
  const std::string place = std::string(transformer_file) + ": processing_kwargs.chat_template";
  if (format != "flat" && format != "structured")
    refuse(std::string(transformer_file) + ": modality_config.message has format " + format.dump() +
           "; supported are flat and structured");
  auto chat = ChatTemplate::find(folder);
  if (!chat)
    refuse(std::string(transformer_file) +
           ": modality_config has message, and the folder has no chat template; expected chat_template.jinja");
  refuse_set(
      options, place,
      {"chat_template", "continue_final_message", "documents", "max_length", "padding", "return_assistant_tokens_mask",
       "return_dict", "return_tensors", "tokenize", "tokenizer_kwargs", "tools", "truncation"});
  PairTemplate made{.chat = std::move(*chat), .parts = format == "structured"};
  made.generation_prompt = value_of(options, "add_generation_prompt", false);
  made.restores_suffix = value_of(options, "restore_suffix", true);
  for (const auto& [name, value] : options.items())
    if (name != "add_generation_prompt" && name != "restore_suffix") made.kwargs[name] = value;
  std::array<std::string, 3> shown;
  try {
    const std::array<std::pair<const char*, const char*>, 3> pairs{
        {{"alpha", "bravo"}, {"charlie", "bravo"}, {"alpha", "foxtrot"}}};
    for (size_t i = 0; i < pairs.size(); ++i) shown[i] = made.render("", pairs[i].first, pairs[i].second, 0);
  } catch (const Error& error) {
    refuse(std::string("the chat template takes no pair of messages with the roles query and document: ") +
           error.what());
  }
  for (size_t i = 1; i < shown.size(); ++i)
    if (shown[i] == shown[0])
      refuse(std::string("the chat template does not show the message of the role ") + (i == 1 ? "query" : "document") +
             ", so that it does not reach the model; expected both texts of a pair");
  return made;
}

/// Returns the tokens that sentence-transformers keeps of a prompt; 0: all.
int64_t read_max_tokens(const json& config, const json& text, const std::filesystem::path& folder) {
  const auto positive = [](const json& object, const char* key) {
    const auto most = value_of<double>(object, key, 0);
    return most >= 1 && most < 1e9 ? static_cast<int64_t>(most) : 0;  // tokenizers without a limit have 1e30
  };
  if (const int64_t most = positive(text, "max_length"); most > 0) return most;
  if (const int64_t most = positive(config, "max_seq_length"); most > 0) return most;
  return positive(read_json_file(folder / "tokenizer_config.json"), "model_max_length");
}

/// Reads how a pair becomes tokens.
void read_transformer(const std::filesystem::path& folder, LogitScore& score) {
  const std::string file = transformer_file;
  const json config = read_json_file(folder / file);
  if (!config.is_object())
    refuse(file + " is missing or no object; expected one with transformer_task text-generation");
  const Names refused{"config_args",  "config_kwargs",    "do_lower_case",  "model_args",
                      "model_kwargs", "processor_kwargs", "tokenizer_args", "tokenizer_name_or_path"};
  refuse_set(config, file, refused);
  json rest = config;
  for (const std::string& name : refused) rest.erase(name);
  for (const char* name : {"document_length", "query_expansion", "query_length", "unpad_inputs"})
    rest.erase(name);  // without effect on a pair
  check_keys(rest, file,
             {"max_seq_length", "modality_config", "module_output_name", "processing_kwargs", "transformer_task"});
  const auto task = value_of<std::string>(config, "transformer_task", "feature-extraction");
  if (task != "text-generation")
    refuse(file + " has transformer_task " + task + "; before LogitScore only text-generation is supported");
  if (const auto output = value_of<std::string>(config, "module_output_name", "causal_logits");
      output != "causal_logits")
    refuse(file + " has module_output_name " + output + "; only causal_logits is supported");

  const json processing = value_of(config, "processing_kwargs", json::object());
  check_keys(processing, file + ": processing_kwargs", {"audio", "chat_template", "common", "image", "text", "video"});
  refuse_set(processing, file + ": processing_kwargs", {"common"});
  const json text = value_of(processing, "text", json::object());
  check_keys(text, file + ": processing_kwargs.text", {"logits_to_keep", "max_length"});

  const json modes =
      value_of(config, "modality_config", json{{"text", {{"method", "forward"}, {"method_output_name", "logits"}}}});
  for (const auto& [name, mode] : modes.items())
    if (value_of<std::string>(mode, "method", "") != "forward" ||
        value_of<json>(mode, "method_output_name", json()) != "logits")
      refuse(file + ": modality_config." + name + " is " + mode.dump().substr(0, 120) +
             "; only the method forward and the method_output_name logits are supported");
  if (!modes.contains("message") && !modes.contains("text"))
    refuse(file + ": modality_config has neither message nor text; expected one of them");
  const json tokenizer = read_json_file(folder / "tokenizer_config.json");
  score.truncates_start = value_of<std::string>(tokenizer, "truncation_side", "right") == "left";
  if (modes.contains("message"))
    score.messages = read_template(folder, value_of(modes["message"], "format", json()),
                                   value_of(processing, "chat_template", json::object()));
  else if (score.truncates_start)
    refuse("tokenizer_config.json has truncation_side left, which is supported for pairs of a chat template only");
  score.max_tokens = read_max_tokens(config, text, folder);
}

/// Returns a message whose fields have the order of sentence-transformers, which templates may show.
ordered_json message(const char* role, const std::string& text, bool parts) {
  ordered_json made{{"role", role}};
  if (parts)
    made["content"].push_back(ordered_json{{"type", "text"}, {"text", text}});
  else
    made["content"] = text;
  return made;
}

}  // namespace

std::string PairTemplate::render(const std::string& instruction, const std::string& query, const std::string& document,
                                 int64_t now) const {
  ordered_json messages = ordered_json::array();
  if (!instruction.empty()) messages.push_back(message("system", instruction, parts));
  messages.push_back(message("query", query, parts));
  messages.push_back(message("document", document, parts));
  const ordered_json conversation{{"messages", std::move(messages)},
                                  {"add_generation_prompt", generation_prompt},
                                  {"kwargs", kwargs},
                                  {"now", now}};
  return chat.render(conversation.dump());
}

std::optional<LogitScore> read_logit_score(const policy::Model& model, const std::filesystem::path& folder) {
  const json modules = read_json_file(folder / "modules.json");
  const auto own =
      std::find_if(modules.begin(), modules.end(), [](const json& module) { return kind_of(module) == "LogitScore"; });
  if (!modules.is_array() || own == modules.end()) return std::nullopt;
  const int64_t vocabulary = vocabulary_of(model);
  if (vocabulary == 0)
    refuse("modules.json has the module LogitScore, and " + model.architecture +
           " is no decoder that generates text; expected one, such as Qwen3ForCausalLM");
  if (modules.size() != 2 || kind_of(modules[0]) != "Transformer" || own != modules.begin() + 1)
    refuse("modules.json has modules beside a Transformer and LogitScore behind it: " + modules.dump().substr(0, 300) +
           "; only these two are supported");
  if (const auto path = value_of<std::string>(modules[0], "path", ""); !path.empty())
    refuse("modules.json has the Transformer in the folder " + path +
           "; before LogitScore it has to be the folder itself");
  const auto path = value_of<std::string>(*own, "path", "");
  LogitScore score = read_module(read_json_file(module_folder(folder, path) / "config.json"),
                                 (std::filesystem::path(path) / "config.json").string(), vocabulary);
  read_transformer(folder, score);
  score.prompts = read_prompts(folder);
  return score;
}

}  // namespace pm::server
