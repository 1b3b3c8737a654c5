// SPDX-License-Identifier: Apache-2.0
// Models that retrieve: an encoder of questions, an index of passages and a generator that reads them. Both models are
// resolved by the policies of their own families.
#include <algorithm>

#include "worker/base/error.h"
#include "worker/checkpoint/passage_index.h"
#include "worker/policy/parts/composite_part.h"

namespace pm::policy {

namespace {

using nlohmann::json;

/// The maximum number of passages of a question; each is a sequence of its own for the generator.
constexpr int64_t most_docs = 1024;
constexpr int64_t most_tokens = int64_t{1} << 20;

constexpr const char *question_name = "question_encoder", *generator_name = "generator", *index_head = "passages";

[[noreturn]] void refuse(const std::string& message) { throw Error(Reason::UnknownArchitecture, message); }
[[noreturn]] void unreadable(const std::string& message) { throw Error(Reason::ModelUnreadable, message); }

/// Returns the first class of a part with this task and kind that is served.
std::optional<Architecture> find_class(const Part& part, Task task, ModelKind wanted) {
  for (const auto& [name, row] : part.policy.get("architectures")->entries) {
    const Node *own = row.get("task"), *kind = row.get("kind"), *refusal = row.get("refuse");
    const std::string& word = (kind ? kind : part.policy.get("kind"))->text;
    if (own && own->text == to_string(task) && word == to_string(wanted) && !(refusal && refusal->is_scalar()))
      return architecture_of(name.text, part.policy, part.variables);
  }
  return std::nullopt;
}

void build_question_encoder(Part& part) {
  const auto architecture = part.policy.get("compose") || part.policy.get("retrieve")
                                ? std::nullopt
                                : find_class(part, Task::Embed, ModelKind::Encoder);
  if (!architecture) refuse(of_part(part, question_name) + ", which has no class that embeds texts");
  set_class(*architecture, part.model);
  build(part.view, part.policy, *architecture, std::nullopt, part.model);
  const auto& pooler = part.model.stacks[0].output.pooler;
  if (part.model.stacks.size() != 1 || !pooler || pooler->pool != Pool::First || pooler->activation)
    refuse(of_part(part, question_name) + ": " + architecture->name +
           " does not give the first token's state, or its projection, as the vector of a text, as DPR does");
  rename_stack(part.model, part.model.stacks[0].name, question_name);
}

void build_generator(Part& part) {
  const auto architecture = part.policy.get("compose") || part.policy.get("retrieve")
                                ? std::nullopt
                                : find_class(part, Task::Generate, ModelKind::EncoderDecoder);
  if (!architecture) refuse(of_part(part, generator_name) + ", which has no encoder-decoder that generates");
  set_class(*architecture, part.model);
  build(part.view, part.policy, *architecture, std::nullopt, part.model);
  std::vector<Stack>& stacks = part.model.stacks;
  if (stacks.size() != 2 || stacks[0].input.reads_media() || !stacks[0].input.token)
    refuse(of_part(part, generator_name) + ": " + architecture->name + " is not one encoder of tokens and one decoder");
  stacks[0].input.prefix = "context_";
}

/// Returns the head that searches the index.
Head make_index(const CheckpointView& view, const Model& question, Retrieval& retrieval) {
  PassagesSpec spec{.embeddings = {}, .count = retrieval.docs};
  const Stack& stack = question.stacks[0];
  const auto& dense = stack.output.pooler->dense;
  const int64_t width = dense ? dense->weight.shape[0] : stack.hidden;
  const std::string folder = (view.checkpoint.folder() / checkpoint::index_folder).string();
  for (int64_t file = 0;; ++file) {
    const std::string name = std::string(checkpoint::embeddings_prefix) + std::to_string(file);
    const checkpoint::TensorInfo* tensor = view.checkpoint.find(name);
    if (!tensor) break;
    if (tensor->shape[1] != width)
      unreadable(folder + " has embeddings of the width " + std::to_string(tensor->shape[1]) +
                 ", the vector of a question has " + std::to_string(width) +
                 "; make the index with the passage encoder that belongs to this model");
    spec.embeddings.push_back({.role = Role::PassageEmbedding,
                               .path = std::string("heads.") + index_head + "." + std::to_string(file),
                               .tensor = tensor,
                               .shape = tensor->shape,
                               .units = tensor->shape[0],
                               .dtype = tensor->dtype,
                               .keep = true});
    retrieval.passages += tensor->shape[0];
  }
  if (spec.embeddings.empty())
    unreadable(folder +
               " has no embeddings.safetensors; a model that retrieves reads its passages there "
               "(docs/reference/passage-index.md), and a folder index/ is not fetched from a hub");
  if (retrieval.passages < retrieval.docs)
    unreadable(folder + " has " + std::to_string(retrieval.passages) + " passages, config.json asks for n_docs " +
               std::to_string(retrieval.docs) + " of them for a question; add passages or lower n_docs");
  return {.name = index_head,
          .stack = question_name,
          .outputs = {"doc_scores", "doc_ids"},
          .kind = std::move(spec),
          .entities = {},
          .layer_weights = {}};
}

int64_t size_of(const Node& retrieve, const char* key, const Variables& variables, int64_t most) {
  const int64_t value = evaluate_int(*retrieve.get(key), variables);
  if (value < 1 || value > most)
    unreadable(retrieve.get(key)->where() + ": " + key + " is " + std::to_string(value) + ", expected 1 to " +
               std::to_string(most));
  return value;
}

/// Returns a token id, or -1 where there is none.
int64_t id_of(const Node* node, const Variables& variables) {
  const json value = node ? evaluate(*node, variables, /*nullable=*/true) : json();
  return value.is_number_integer() ? value.get<int64_t>() : -1;
}

Retrieval read_retrieval(const Node& retrieve, const Architecture& architecture, const Variables& variables) {
  return {.marginal = *parse<Marginal>(architecture.node->get("marginal")->text),
          .docs = size_of(retrieve, "docs", variables, most_docs),
          .max_length = size_of(retrieve, "max_length", variables, most_tokens),
          .prefix = evaluate_text(*retrieve.get("text_prefix"), variables),
          .title_sep = evaluate_text(*retrieve.get("title_sep"), variables),
          .doc_sep = evaluate_text(*retrieve.get("doc_sep"), variables),
          .deduplicate = evaluate_bool(*retrieve.get("deduplicate"), variables),
          .bos = id_of(retrieve.get("bos"), variables),
          .pad = id_of(retrieve.get("pad"), variables)};
}

/// Sets the end, start and forced tokens. Answers of passages are the generator's own, which reads its section alone.
/// Else the ids of the whole model come first, and where they are absent those of the section, as transformers has it.
void set_token_ids(const CheckpointView& view, const Node& policy, const Node& retrieve, const Variables& variables,
                   const Part& generator, Model& model) {
  const bool answers_of_passages = model.retrieval->marginal == Marginal::Sequence;
  if (answers_of_passages) {
    model.task = Task::Embed;  // generation_config.json is the whole model's, which the generator does not read
    read_token_ids(view.checkpoint, generator.policy, generator.variables, model);
    model.task = Task::Generate;
  } else {
    read_token_ids(view.checkpoint, policy, variables, model);
  }
  std::error_code error;
  if (!answers_of_passages && std::filesystem::exists(view.checkpoint.folder() / "generation_config.json", error))
    return;
  if (model.forced_bos < 0) model.forced_bos = id_of(retrieve.get("forced_bos"), variables);
  if (model.forced_eos < 0) model.forced_eos = id_of(retrieve.get("forced_eos"), variables);
}

}  // namespace

Model resolve_retrieval(const CheckpointView& view, const Node& policy) {
  const Node& retrieve = *policy.get("retrieve");
  const Variables variables{&view.config, {policy.get("let")}, std::nullopt};
  Model model;
  const Architecture architecture = architecture_of(class_of(view, policy), policy, variables);
  set_class(architecture, model);
  model.retrieval = read_retrieval(retrieve, architecture, variables);
  const std::string before = retrieve.get("prefix")->text;
  const Node &question_section = *retrieve.get(question_name), &generator_section = *retrieve.get(generator_name);
  Part question{.view = view_of(view, question_section.text, before)},
      generator{.view = view_of(view, generator_section.text, before)};
  open_part(question, question_section);
  open_part(generator, generator_section);
  CheckpointView rest = view;
  rest.others = {question.view.prefix, generator.view.prefix, std::string(checkpoint::index_prefix)};
  Binder binder(rest, policy);

  build_question_encoder(question);
  build_generator(generator);
  set_token_ids(view, policy, retrieve, variables, generator, model);
  Head index = make_index(view, question.model, *model.retrieval);
  const int64_t positions = generator.model.stacks[0].positions;
  if (positions > 0 && model.retrieval->max_length > positions)
    unreadable("config.json says max_combined_length " + std::to_string(model.retrieval->max_length) +
               ", and the generator's encoder has " + std::to_string(positions) + " positions");

  const int64_t question_positions = question.model.stacks[0].positions;
  // the plan has one length for all inputs
  if (question_positions > 0 && model.retrieval->max_length > question_positions)
    refuse("config.json says max_combined_length " + std::to_string(model.retrieval->max_length) +
           ", and the encoder of questions has " + std::to_string(question_positions) +
           " positions, which limit every input of the model; lower max_combined_length");

  model.not_loaded = binder.finish();
  for (Part* part : {&question, &generator}) {
    for (Stack& stack : part->model.stacks) model.stacks.push_back(std::move(stack));
    model.not_loaded.insert(model.not_loaded.end(), part->model.not_loaded.begin(), part->model.not_loaded.end());
  }
  model.heads = std::move(generator.model.heads);
  model.heads.push_back(std::move(index));
  std::sort(model.not_loaded.begin(), model.not_loaded.end());
  return model;
}

}  // namespace pm::policy
