// SPDX-License-Identifier: Apache-2.0
// Decoders that read images among their tokens: a tower of another family makes rows of an image, which a projector
// brings to the decoder's width.
#include <algorithm>

#include "worker/base/error.h"
#include "worker/policy/keywords.h"
#include "worker/policy/parts/composite_part.h"
#include "worker/policy/parts/projector_builder.h"

namespace pm::policy {

namespace {

using nlohmann::json;

constexpr const char* tower_name = "vision";

[[noreturn]] void refuse(const std::string& message) { throw Error(Reason::UnknownArchitecture, message); }

/// Returns the first listed beginning that names of the checkpoint have; nothing where none has it.
std::optional<std::string> find_beginning(const CheckpointView& view, const Node& listed) {
  for (const std::string& beginning : texts_of(&listed))
    for (const auto& [name, info] : view.checkpoint.tensors())
      if (name.starts_with(beginning)) return beginning;
  return std::nullopt;
}

/// Returns the class that gives the states of images: what transformers' AutoModel makes.
Architecture tower_class(const Part& part, const std::string& section) {
  const Node* table = part.policy.get("compose") ? nullptr : part.policy.get("architectures");
  if (!table) refuse(of_part(part, section) + ", which is made of parts itself");
  for (const auto& [name, row] : table->entries) {
    const Node *task = row.get("task"), *kind = row.get("kind");
    const std::string& word = (kind ? kind : part.policy.get("kind"))->text;
    if (task && task->text == to_string(Task::Embed) && word == to_string(ModelKind::Vision) && !row.get("heads"))
      return described(name.text, row, part.policy, part.variables);
  }
  refuse(of_part(part, section) + ", which has no class that gives the states of patches of images");
}

/// Leaves out the layers from `count` on, and what comes behind the last one: a state in the middle is read as it is.
void cut(Part& part, int64_t count) {
  Stack& stack = part.model.stacks[0];
  for (const PlacedParam& placed : placed_params(part.model)) {
    if (placed.place >= count || placed.place == stack_output)
      part.model.not_loaded.push_back(placed.param->tensor->name);
  }
  stack.layers.resize(static_cast<size_t>(count));
  stack.output = {};
}

/// Leaves out the pooler, which has no part in the rows of images.
void drop_pooler(Part& part) {
  std::optional<Pooler>& pooler = part.model.stacks[0].output.pooler;
  if (!pooler) return;
  ParamCollector unread;
  unread.add(pooler->norm);
  unread.add(pooler->dense);
  for (const Param* param : unread.params()) part.model.not_loaded.push_back(param->tensor->name);
  pooler.reset();
}

/// Builds the tower up to the state that `images` names.
void build_tower(Part& part, const Node& images, const Variables& variables) {
  const Architecture architecture = tower_class(part, images.get("section")->text);
  set_class(architecture, part.model);
  build(part.view, part.policy, architecture, std::nullopt, part.model);
  if (part.model.stacks.size() != 1 || !part.model.stacks[0].input.reads_patches())
    refuse(of_part(part, images.get("section")->text) + ": " + architecture.name +
           " is not one stack of patches of images");
  const Node* state = images.get("state");
  const json value = state ? evaluate(*state, variables, /*nullable=*/true) : json();
  if (value.is_null()) return drop_pooler(part);
  const auto layers = static_cast<int64_t>(part.model.stacks[0].layers.size());
  const int64_t number = value.is_number_integer() ? value.get<int64_t>() : -layers - 2,
                count = number < 0 ? layers + 1 + number : number;
  if (count < 1 || count > layers)
    refuse(state->where() + ": the state of the tower is " + value.dump() + ", expected the number of one of its " +
           std::to_string(layers) + " layers, or a negative one from the end");
  cut(part, count);
}

/// Finds the policy of the tower: that of the section's model_type, or the one that `images` names.
void open_tower(Part& tower, const Node& images, const Variables& variables) {
  const Node* named = images.get("tower");
  if (!named) return open_part(tower, *images.get("section"));
  tower.type = evaluate_text(*named, variables);
  tower.policy = builtin_policy(tower.type);
  tower.variables = {&tower.view.config, {tower.policy.get("let")}, std::nullopt};
  tower.model.model_type = tower.type;
}

/// Returns the layers of the tower behind which deep projectors read its states.
std::vector<int64_t> deep_layers(const Node& deepstack, const Variables& variables) {
  const json listed = evaluate(*deepstack.get("states"), variables, /*nullable=*/true);
  std::vector<int64_t> layers;
  for (const json& one : listed) {
    if (!one.is_number_integer() || one.get<int64_t>() < (layers.empty() ? 0 : layers.back() + 1))
      throw Error(Reason::ModelUnreadable, deepstack.get("states")->where() + ": the layers of deepstack are " +
                                               listed.dump() + ", expected ascending numbers of layers");
    layers.push_back(one.get<int64_t>());
  }
  return layers;
}

/// Sets the side of squares of patches where the model says it, and not its tower.
void set_merge(const Node& images, const Variables& variables, Stack& tower) {
  const Node* merge = images.get("projector")->get("merge");
  if (!merge || !tower.input.patch_grid) return;
  tower.input.patch_grid->merge = evaluate_int(*merge, variables);
  if (tower.input.patch_grid->merge < 1)
    throw Error(Reason::ModelUnreadable, merge->where() + ": squares have a side of " +
                                             std::to_string(tower.input.patch_grid->merge) +
                                             " patches, expected 1 or more");
}

/// Reads the texts behind the rows of images: a list of two, or null.
void read_row_ends(const Node& images, const Variables& variables, ImageSpelling& spelling) {
  const Node* ends = images.get("row_ends");
  const json both = ends ? evaluate(*ends, variables, /*nullable=*/true) : json();
  if (both.is_null()) return;
  if (!both.is_array() || both.size() != 2 || !both[0].is_string() || !both[1].is_string())
    refuse(ends->where() + ": the ends of rows of images are " + both.dump() + ", expected two texts");
  spelling.between = both[0];
  spelling.last = both[1];
}

void sort_names(std::vector<std::string>& names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
}

/// Returns the number of rows that the projector makes of an image.
int64_t rows_of_image(const Stack& stack, const ImageProjector& projector, const Node& images) {
  if (stack.input.patch_grid) {
    if (projector.skipped > 0 || projector.pooled > 1)
      refuse(images.where() + ": states of images of any size are left out or pooled");
    return 0;
  }
  const int64_t states = stack.positions - projector.skipped;
  if (projector.skipped < 0 || states < 1)
    refuse(images.where() + ": " + std::to_string(projector.skipped) + " of the " + std::to_string(stack.positions) +
           " states of an image are left out");
  const std::vector<int64_t>& patch = stack.input.projection->weight.shape;
  const int64_t down = stack.input.image[0] / patch[2], across = stack.input.image[1] / patch[3],
                side = projector.pooled;
  if (side == 1) return states;
  if (side < 1 || down * across != states || down % side != 0 || across % side != 0)
    refuse(images.where() + ": squares of " + std::to_string(side) + " patches do not cover " + std::to_string(down) +
           " x " + std::to_string(across) + " of them");
  return states / side / side;
}

/// Reads which tokens stand for images, and how prompts spell these.
ImageTokens read_tokens(const Node& images, const Variables& variables, int64_t vocabulary) {
  ImageTokens tokens{.stack = tower_name, .spelling = {}};
  const auto id = [&](const char* key, int64_t absent) {
    const Node* node = images.get(key);
    const int64_t found = node ? evaluate_int(*node, variables) : absent;
    if (node && (found < 0 || found >= vocabulary))
      refuse(node->where() + ": \"" + key + "\" of images is the token " + std::to_string(found) +
             ", the vocabulary has " + std::to_string(vocabulary));
    return found;
  };
  tokens.token = id("token", 0);
  tokens.spelling = {.placeholder = id("placeholder", tokens.token),
                     .before = images.get("before") ? images.get("before")->text : "",
                     .after = images.get("after") ? images.get("after")->text : "",
                     .begin = id("begin", -1),
                     .end = id("end", -1)};
  read_row_ends(images, variables, tokens.spelling);
  const Node* bidirectional = images.get("bidirectional");
  tokens.bidirectional = bidirectional && evaluate_bool(*bidirectional, variables);
  return tokens;
}

}  // namespace

std::vector<std::string> ImageTensors::prefixes() const {
  std::vector<std::string> all{tower, projector};
  if (!deepstack.empty()) all.push_back(deepstack);
  return all;
}

std::optional<ImageTensors> find_image_tensors(const CheckpointView& view, const Node& policy) {
  const Node* images = policy.get("images");
  const json& config = view.checkpoint.config();
  const auto section = images ? config.find(images->get("section")->text) : config.end();
  if (section == config.end() || !section->is_object()) return std::nullopt;
  const auto find = [&](const Node& listed) {
    if (const auto found = find_beginning(view, listed)) return *found;
    std::string all;
    for (const std::string& one : texts_of(&listed)) all += (all.empty() ? "\"" : "\" or \"") + one;
    throw Error(Reason::ModelUnreadable, "the checkpoint has no tensor whose name begins with " + all +
                                             "\", although config.json has a section \"" +
                                             images->get("section")->text + "\" (" + listed.where() + ")");
  };
  const Variables variables{&config, {}, std::nullopt};
  const Node* deep = images->get("deepstack");
  return ImageTensors{find(*images->get("prefix")), find(*images->get("projector")->get("prefix")),
                      deep && !deep_layers(*deep, variables).empty() ? find(*deep->get("prefix")) : std::string()};
}

void add_image_tower(const CheckpointView& view, const Node& policy, const ImageTensors& tensors, Model& model) {
  const Node &images = *policy.get("images"), &section = *images.get("section");
  const json& config = view.checkpoint.config();
  const Variables variables{&config, {}, std::nullopt};
  Part tower{.view = {.checkpoint = view.checkpoint, .config = config.at(section.text), .prefix = tensors.tower}};
  tower.view.others = {tensors.projector};
  if (!tensors.deepstack.empty()) tower.view.others.push_back(tensors.deepstack);
  ImageTokens tokens;
  std::vector<std::string> not_loaded;
  try {
    open_tower(tower, images, variables);
    build_tower(tower, images, variables);
    Stack& stack = tower.model.stacks[0];
    rename_stack(tower.model, std::string(stack.name), tower_name);
    tokens = read_tokens(images, variables, model.stacks.back().vocab);
    const auto rest = [&](const std::string& prefix) {
      return CheckpointView{.checkpoint = view.checkpoint, .config = config, .prefix = prefix};
    };
    set_merge(images, variables, stack);
    const ProjectorBuilder build{policy, stack, variables, model.stacks.back().hidden};
    ImageProjector made = build.final(rest(tensors.projector), *images.get("projector"), not_loaded);
    if (const Node* skip = images.get("skip")) made.skipped = evaluate_int(*skip, variables);
    tokens.rows = rows_of_image(stack, made, images);
    if (!tensors.deepstack.empty()) {
      const Node& deep = *images.get("deepstack");
      stack.output.deep_projectors =
          build.deep(rest(tensors.deepstack), deep, deep_layers(deep, variables), not_loaded);
      tokens.deepstack = static_cast<int64_t>(stack.output.deep_projectors.size());
    }
    stack.output.image_projector = std::move(made);
  } catch (const Error& error) {
    if (error.reason != Reason::UnknownArchitecture) throw;
    model.images_refused = error.what();
    for (const auto& [name, info] : view.checkpoint.tensors())
      for (const std::string& prefix : tensors.prefixes())
        if (name.starts_with(prefix)) model.not_loaded.push_back(name);
    sort_names(model.not_loaded);
    return;
  }
  model.stacks.back().input.images = tokens;
  model.stacks.insert(model.stacks.begin(), std::move(tower.model.stacks[0]));
  for (const auto* names : {&tower.model.not_loaded, &not_loaded})
    model.not_loaded.insert(model.not_loaded.end(), names->begin(), names->end());
  sort_names(model.not_loaded);
}

}  // namespace pm::policy
