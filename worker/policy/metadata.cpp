// SPDX-License-Identifier: Apache-2.0
// Merges a model's parameters into the planner's metadata.
#include "worker/policy/metadata.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "contract/image_patches.h"
#include "contract/query_block.h"
#include "worker/policy/roles.h"
#include "worker/policy/tensor_slices.h"

namespace pm::policy {

namespace {

int64_t elements_of(const Param& param) {
  return std::accumulate(param.shape.begin(), param.shape.end(), int64_t{1}, std::multiplies<>());
}

/// Appends the ascending places of one stack as runs with equal steps.
void append_runs(const std::string& stack, const std::set<int>& places, std::vector<Use>& uses) {
  std::vector<int> layers;
  for (const int place : places) {
    if (place < 0)
      uses.push_back({stack, place});
    else
      layers.push_back(place);
  }
  for (size_t i = 0; i < layers.size();) {
    Use use{stack, layers[i]};
    size_t end = i + 1;
    if (end < layers.size()) use.every = layers[end] - layers[i];
    while (end < layers.size() && layers[end] - layers[end - 1] == use.every) ++end;
    use.count = static_cast<int>(end - i);
    if (use.count == 1) use.every = 1;
    uses.push_back(use);
    i = end;
  }
}

/// Returns, by the path of the owner, the places beside the owner's that read a shared storage.
std::map<std::string, std::vector<Use>> find_uses(const std::vector<PlacedParam>& all,
                                                  const std::vector<std::string>& stacks) {
  std::map<std::string, std::pair<std::string, int>> owners;
  std::map<std::string, std::map<std::string, std::set<int>>> places;
  for (const auto& [param, place] : all) {
    if (param->shares.empty())
      owners[param->path] = {param->stack, place};
    else
      places[param->shares][param->stack].insert(place);
  }
  std::map<std::string, std::vector<Use>> uses;
  for (auto& [owner, by_stack] : places) {
    if (const auto home = owners.find(owner); home != owners.end())
      by_stack[home->second.first].erase(home->second.second);
    for (const std::string& stack : stacks) {
      if (by_stack.contains(stack)) append_runs(stack, by_stack[stack], uses[owner]);
    }
  }
  return uses;
}

/// The properties that two parameters of one part share: axis, units, type, keep, who else reads them, how many of the
/// experts a token reads, and the layout of heads.
using Kind = std::tuple<Axis, int64_t, DType, bool, std::vector<Use>, RoutedShare, int>;

/// The elements per unit at one place, and how many of them are held as codes.
struct Amount {
  int64_t elements = 0;
  Quantised quantised;
  bool operator==(const Amount&) const = default;
  void add(const Param& param, const ShardingRule& rule, int64_t units) {
    elements += elements_of(param) / units;
    if (!param.matrix || param.keep) return;
    const int64_t out = param.shape[0], in = param.shape[1], group = scale_group(param);
    quantised.elements += out * in / units;
    if (group != code_group) {
      quantised.wide_elements += out * in / units;
      quantised.wide_scales += out * (in / units / group);
    }
    if (rounds_inputs(param, DType::I8A8)) {
      if (rule.dim != 1)
        quantised.rows += out / units;
      else
        quantised.shared_rows += out;
    }
    if (rule.dim != 1)
      quantised.scales += out / units * ((in + group - 1) / group);
    else if (rule.axis != Axis::Ffn)
      quantised.scales += out * (in / units / group);
    else
      quantised.block_scales += out;
  }
};

/// Puts parts that differ in their layers alone beside each other, for JSON writes these as one.
void gather_equal(std::vector<Part>::iterator begin, std::vector<Part>::iterator end) {
  for (; begin != end; ++begin) {
    const auto is_like = [first = *begin](const Part& part) {
      return part.elements_per_unit == first.elements_per_unit && part.quantised == first.quantised;
    };
    begin = std::stable_partition(begin, end, is_like) - 1;
  }
}

/// Returns the parts of one stack. Neighboring layers with equal amounts are merged into one part.
std::vector<Part> parts_of(const std::string& stack, const std::vector<PlacedParam>& all,
                           const std::map<std::string, std::vector<Use>>& uses) {
  std::map<Kind, std::map<int, Amount>> table;
  for (const auto& [param, place] : all) {
    if (param->stack != stack || !param->shares.empty()) continue;
    const ShardingRule rule = sharding_rule(param->role);
    const int64_t units = rule.axis == Axis::None ? 1 : param->units;
    const auto also = uses.find(param->path);
    const std::vector<Use> others = also == uses.end() ? std::vector<Use>{} : also->second;
    const bool by_heads = rule.axis == Axis::Heads || rule.axis == Axis::Kv || rule.axis == Axis::KvRows;
    table[{rule.axis, units, param->dtype, param->keep, others, param->routed, by_heads ? param->layout : 0}][place]
        .add(*param, rule, units);
  }
  std::vector<Part> parts;
  for (const auto& [kind, places] : table) {
    const auto& [axis, units, dtype, keep, also, routed, layout] = kind;
    bool open = false;  // the last part may grow
    const auto before = static_cast<std::ptrdiff_t>(parts.size());
    for (const auto& [place, amount] : places) {
      Part* last = open ? &parts.back() : nullptr;
      if (last && also.empty() && place >= 0 && last->first >= 0 && last->first + last->count == place &&
          Amount{last->elements_per_unit, last->quantised} == amount)
        ++last->count;
      else
        parts.push_back(
            {stack, place, 1, axis, units, amount.elements, dtype, keep, also, amount.quantised, routed, layout});
      open = true;
    }
    gather_equal(parts.begin() + before, parts.end());
  }
  return parts;
}

std::vector<LayerRun> runs_of(const std::set<int>& layers) {
  std::vector<Use> uses;
  append_runs("", layers, uses);
  std::vector<LayerRun> runs;
  for (const Use& use : uses) runs.push_back({use.first, use.count, use.every});
  return runs;
}

/// Sets the layouts of heads beside the first layer's, and which layers cache keys and values.
void set_layouts(const Stack& stack, StackMetadata& metadata) {
  std::vector<std::set<int>> caching;
  std::map<int, std::set<int>> readers;  // by the layer that they read
  for (size_t number = 0; number < stack.layers.size(); ++number) {
    const Attention& attention = stack.layers[number].attention;
    const auto layout = static_cast<size_t>(attention.layout);
    if (layout > metadata.layouts.size()) {
      metadata.layouts.resize(layout);
      caching.resize(layout);
    }
    if (layout > 0) {
      HeadLayout& made = metadata.layouts[layout - 1];
      made = {attention.heads, attention.kv_heads, attention.head_dim, {}};
    }
    if (attention.reuses)
      readers[static_cast<int>(*attention.reuses)].insert(static_cast<int>(number));
    else if (layout > 0)
      caching[layout - 1].insert(static_cast<int>(number));
  }
  for (size_t i = 0; i < caching.size(); ++i) metadata.layouts[i].layers = runs_of(caching[i]);
  for (const auto& [source, layers] : readers)
    metadata.reuses.push_back({source, stack.layers[static_cast<size_t>(source)].attention.layout, runs_of(layers)});
}

Recurrence recurrence(const Stack& stack) {
  Recurrence made;
  std::set<int> keeping, attending;
  for (size_t number = 0; number < stack.layers.size(); ++number) {
    const std::optional<Recurrent>& block = stack.layers[number].recurrent;
    if (!block) {
      if (stack.layers[number].has_mixer) attending.insert(static_cast<int>(number));
      continue;
    }
    keeping.insert(static_cast<int>(number));
    const StateShape state = block->state();
    made = {.units = state.units,
            .state = state.elements(),
            .channels = state.projected,
            .shared_state = state.shared_elements(),
            .shared_channels = state.shared_channels};
  }
  if (made.units == 0) return made;
  made.layers = runs_of(keeping);
  made.attending = runs_of(attending);
  return made;
}

StackMetadata model_metadata(const Stack& stack) {
  StackMetadata metadata{.name = stack.name, .layers = static_cast<int>(stack.layers.size()), .hidden = stack.width()};
  metadata.vocab = stack.vocab;
  metadata.positions = stack.positions;
  metadata.media = stack.input.reads_media();
  if (stack.input.patch_grid) {
    metadata.positions = counted_image_patches;
    metadata.query_block = patch_query_block;
  }
  metadata.integers = stack.input.quantized.has_value();
  if (stack.layers.empty()) return metadata;
  const Layer& layer = stack.layers.front();
  metadata.heads = layer.attention.heads;
  metadata.kv_heads = layer.attention.kv_heads;
  metadata.head_dim = std::max(layer.attention.head_dim, layer.attention.value_width());
  if (layer.attention.latent) metadata.latent = layer.attention.latent->width();
  metadata.recurrence = recurrence(stack);
  for (const Layer& one : stack.layers)
    metadata.ffn = std::max({metadata.ffn, one.mlp.width(), one.beside ? one.beside->mlp.width() : 0});
  metadata.causal = layer.attention.mask == Mask::Causal;
  metadata.cross = layer.cross.has_value();
  metadata.memory = stack.memory ? stack.memory->length : 0;
  metadata.exchanges = static_cast<int64_t>(layer.stacked.size()) + (layer.bottleneck ? 2 : 0) +
                       (layer.attention.span_convolution ? 1 : 0) + (layer.attention.projection_norms ? 1 : 0) +
                       (layer.co_attention ? 1 : 0) + (layer.beside ? 1 : 0);
  if (stack.input.layer_inputs) metadata.layer_inputs = stack.input.layer_inputs->width;
  set_layouts(stack, metadata);
  for (const Layer& one : stack.layers) {
    if (const auto* window = std::get_if<SlidingWindow>(&one.attention.pattern))
      metadata.query_block = std::max(metadata.query_block, sliding_query_block(window->size / 2));
    if (const auto& content = one.attention.relative_content)
      metadata.relative_rows = std::max(metadata.relative_rows, 2 * content->span);
    if (const auto* blocks = std::get_if<BlockSparse>(&one.attention.pattern))
      metadata.query_block = std::max(metadata.query_block, blocks->block);
    if (const auto& chunks = one.attention.chunks)
      metadata.query_block =
          std::max(metadata.query_block, chunks->length * (chunks->hashes ? chunks->hashes->rounds : 1));
  }
  return metadata;
}

}  // namespace

void mark_matrices(Model& model) {
  const std::vector<PlacedParam> all = placed_params(model);
  std::set<std::string> owners;  // of storages that are multiplied
  const auto owner = [](const Param& param) { return param.shares.empty() ? param.path : param.shares; };
  for (const auto& [param, place] : all) {
    // scales of codes belong to inputs that lie beside each other, which those of a block-diagonal matrix do not
    if (is_matrix(param->role) && param->shape.size() == 2 && param->diagonal_blocks == 1) owners.insert(owner(*param));
  }
  for (const auto& [param, place] : all)
    const_cast<Param*>(param)->matrix = owners.contains(owner(*param));  // the caller passed the model as mutable
}

ModelMetadata model_metadata(const Model& model) {
  ModelMetadata metadata{
      .model_type = model.model_type, .architecture = model.architecture, .task = std::string(to_string(model.task))};
  const std::vector<PlacedParam> all = placed_params(model);
  std::map<DType, int64_t> bytes;
  for (const auto& [param, place] : all) {
    if (!param->shares.empty()) continue;
    const int64_t elements = elements_of(*param), stored = elements * size_of(param->tensor->dtype);
    metadata.parameters += elements;
    metadata.checkpoint_bytes += stored;
    if (param->role != Role::PassageEmbedding) bytes[param->tensor->dtype] += stored;  // of what computes
  }
  int64_t most = 0;
  for (const auto& [dtype, count] : bytes)
    if (count > most) most = count, metadata.dtype = dtype;
  std::vector<std::string> stacks;
  for (const Stack& stack : model.stacks) {
    metadata.stacks.push_back(model_metadata(stack));
    if (model.recompute && model.recompute->overlap) metadata.stacks.back().rows_per_token = 2;
    stacks.push_back(stack.name);
  }
  stacks.emplace_back();
  const auto uses = find_uses(all, stacks);
  for (const std::string& stack : stacks) {
    for (Part& part : parts_of(stack, all, uses)) metadata.parts.push_back(std::move(part));
  }
  return metadata;
}

}  // namespace pm::policy
