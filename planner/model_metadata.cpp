// SPDX-License-Identifier: Apache-2.0
// Writes and parses model metadata as JSON. Keys are short and defaults are left out because the whole must fit a
// termination message of 4,096 bytes.
#include "planner/model_metadata.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/json_reader.h"

namespace pm {

using base::JsonReader;
using nlohmann::json;

std::string_view name_of(Axis axis) {
  switch (axis) {
    case Axis::None:
      return "none";
    case Axis::Heads:
      return "heads";
    case Axis::Kv:
      return "kv";
    case Axis::KvRows:
      return "kv_rows";
    case Axis::Ffn:
      return "ffn";
    case Axis::Vocab:
      return "vocab";
    case Axis::Positions:
      return "positions";
    case Axis::Groups:
      return "groups";
    case Axis::Passages:
      return "passages";
    case Axis::Latent:
      return "latent";
  }
  return "?";
}

std::optional<Axis> axis_of(std::string_view name) {
  for (Axis axis : {Axis::None, Axis::Heads, Axis::Kv, Axis::KvRows, Axis::Ffn, Axis::Vocab, Axis::Positions,
                    Axis::Groups, Axis::Passages, Axis::Latent}) {
    if (name_of(axis) == name) return axis;
  }
  return std::nullopt;
}

namespace {

// Bounds of untrusted metadata are far above any model, and low enough that no product of them overflows 64 bits before
// it is checked.
constexpr int64_t max_bytes = int64_t{1} << 58;
constexpr int64_t max_elements = int64_t{1} << 40;
constexpr int64_t max_units = int64_t{1} << 32;
constexpr int64_t max_width = int64_t{1} << 24;
constexpr int64_t max_heads = int64_t{1} << 16;
constexpr int64_t max_layers = 4096;  // of a stack
constexpr int64_t max_count = 1 << 16;
constexpr int64_t max_exchanges = 1024;  // of a layer
constexpr int64_t max_rows_per_token = 16;
constexpr size_t max_uses = 1024;
constexpr size_t max_reuses = 256;                                                // of a stack
constexpr int64_t max_state = int64_t{1} << 28, max_channels = int64_t{1} << 20;  // of a recurrent layer's unit
constexpr size_t max_parts = 1 << 15;

/// [[first, count, every], ...]
json runs_json(const std::vector<LayerRun>& runs) {
  json out = json::array();
  for (const LayerRun& run : runs) out.push_back({run.first, run.count, run.every});
  return out;
}

json stack_json(const StackMetadata& stack) {
  json out{{"n", stack.name},  {"l", stack.layers},   {"h", stack.hidden},
           {"a", stack.heads}, {"d", stack.head_dim}, {"f", stack.ffn}};
  if (stack.kv_heads != stack.heads) out["k"] = stack.kv_heads;
  if (stack.vocab != 0) out["v"] = stack.vocab;
  if (stack.positions != 0) out["p"] = stack.positions;
  if (stack.causal) out["c"] = true;
  if (stack.media) out["m"] = true;
  if (stack.integers) out["i"] = true;
  if (stack.cross) out["x"] = true;
  if (stack.query_block != 0) out["b"] = stack.query_block;
  if (stack.relative_rows != 0) out["r"] = stack.relative_rows;
  if (stack.memory != 0) out["y"] = stack.memory;
  if (stack.exchanges != 0) out["e"] = stack.exchanges;
  if (stack.rows_per_token != 1) out["t"] = stack.rows_per_token;
  for (const HeadLayout& layout : stack.layouts)
    out["g"].push_back({layout.heads, layout.kv_heads, layout.head_dim, runs_json(layout.layers)});
  for (const KeyReuse& reuse : stack.reuses) out["w"].push_back({reuse.source, reuse.layout, runs_json(reuse.layers)});
  if (const Recurrence& recurrence = stack.recurrence; recurrence.units > 0)
    out["s"] = {recurrence.units,
                recurrence.state,
                recurrence.channels,
                recurrence.shared_state,
                recurrence.shared_channels,
                runs_json(recurrence.layers),
                runs_json(recurrence.attending)};
  if (stack.latent != 0) out["u"] = stack.latent;
  if (stack.layer_inputs != 0) out["j"] = stack.layer_inputs;
  return out;
}

json use_json(const Use& use) {
  json out = json::array({use.stack, use.first});
  if (use.count != 1 || use.every != 1) out.push_back(use.count);
  if (use.every != 1) out.push_back(use.every);
  return out;
}

json part_json(const Part& part, DType usual) {
  json out{{"e", part.elements_per_unit}};
  if (!part.stack.empty()) out["s"] = part.stack;
  if (part.first != 0) out["i"] = part.first;
  if (part.count != 1) out["n"] = part.count;
  if (part.axis != Axis::None) out["x"] = name_of(part.axis);
  if (part.units != 1) out["u"] = part.units;
  if (part.dtype != usual) out["t"] = name_of(part.dtype);
  if (part.keep) out["k"] = true;
  if (const Quantised& q = part.quantised; q.elements != 0) {
    out["q"] = {q.elements, q.scales};
    if (q.block_scales != 0 || q.wide_elements != 0) out["q"].push_back(q.block_scales);
    if (q.wide_elements != 0) {
      out["q"].push_back(q.wide_elements);
      out["q"].push_back(q.wide_scales);
    }
  }
  if (const Quantised& q = part.quantised; q.rows != 0 || q.shared_rows != 0) out["w"] = {q.rows, q.shared_rows};
  if (part.routed.experts != 0) out["r"] = {part.routed.experts, part.routed.per_token};
  if (part.layout != 0) out["l"] = part.layout;
  for (const Use& use : part.also) out["a"].push_back(use_json(use));
  return out;
}

DType read_dtype(const JsonReader& reader, const char* key, std::optional<DType> fallback) {
  if (fallback && !reader.has(key)) return *fallback;
  const std::string name = reader.text(key, 16);
  const auto type = dtype_of(name);
  if (!type) JsonReader::fail(reader.path(key), "\"" + name + "\"", "a dtype such as F32, F16 or BF16");
  return *type;
}

/// Returns the items of an array by name. Throws unless there are as many; `form` describes them.
json items_of(const json& value, const std::string& path, const char* form, std::initializer_list<const char*> names) {
  if (!value.is_array() || value.size() != names.size()) JsonReader::wrong(path, value, form);
  json items = json::object();
  for (size_t i = 0; i < names.size(); ++i) items[names.begin()[i]] = value[i];
  return items;
}

void check_heads(const std::string& path, int64_t heads, int64_t kv_heads) {
  if (heads > 0 && (kv_heads < 1 || heads % kv_heads != 0)) {
    JsonReader::fail(path, std::to_string(kv_heads) + " kv heads",
                     "a divisor of the " + std::to_string(heads) + " heads");
  }
}

/// [[first, count, every], ...], all of them layers of a stack.
std::vector<LayerRun> read_runs(const json& value, const std::string& path, int64_t layers) {
  const char* form = "a list of [first, count, every], layers of the stack";
  if (!value.is_array() || value.size() > max_uses) JsonReader::wrong(path, value, form);
  std::vector<LayerRun> runs;
  for (const json& one : value) {
    const json run = items_of(one, path, form, {"first", "count", "every"});
    const JsonReader reader(run, path);
    const int64_t first = reader.integer("first", 0, layers - 1), count = reader.integer("count", 1, layers),
                  every = reader.integer("every", 1, layers);
    if (first + (count - 1) * every >= layers) JsonReader::wrong(path, one, form);
    runs.push_back({static_cast<int>(first), static_cast<int>(count), static_cast<int>(every)});
  }
  return runs;
}

/// [heads, kv heads, head size, runs of layers]
HeadLayout read_layout(const json& value, const std::string& path, int64_t layers) {
  const json items =
      items_of(value, path, "[heads, kv heads, head size, runs of layers]", {"heads", "kv", "size", "layers"});
  const JsonReader reader(items, path);
  HeadLayout layout{reader.integer("heads", 1, max_heads), reader.integer("kv", 1, max_heads),
                    reader.integer("size", 1, max_width), read_runs(items["layers"], path, layers)};
  check_heads(path, layout.heads, layout.kv_heads);
  return layout;
}

/// [layer that caches, layout, runs of layers]
KeyReuse read_reuse(const json& value, const std::string& path, const StackMetadata& stack) {
  const json items = items_of(value, path, "[layer, layout, runs of layers]", {"layer", "layout", "readers"});
  const JsonReader reader(items, path);
  return {static_cast<int>(reader.integer("layer", 0, stack.layers - 1)),
          static_cast<int>(reader.integer("layout", 0, static_cast<int64_t>(stack.layouts.size()))),
          read_runs(items["readers"], path, stack.layers)};
}

/// [units, numbers of a state, channels, both of all units, runs of the layers with states, of those that attend]
Recurrence read_recurrence(const json& value, const std::string& path, int64_t layers) {
  const json items =
      items_of(value, path,
               "[units, numbers of a state, channels, shared numbers, shared channels, runs of the layers "
               "with states, runs of those that attend]",
               {"units", "state", "channels", "shared_state", "shared_channels", "layers", "attending"});
  const JsonReader reader(items, path);
  Recurrence made{reader.integer("units", 1, max_heads),
                  reader.integer("state", 1, max_state),
                  reader.integer("channels", 1, max_channels),
                  reader.integer("shared_state", 0, max_state),
                  reader.integer("shared_channels", 0, max_channels),
                  read_runs(items["layers"], path, layers),
                  read_runs(items["attending"], path, layers)};
  if (layers_in(made.layers) + layers_in(made.attending) > layers)
    JsonReader::wrong(path, value,
                      "at most the " + std::to_string(layers) + " layers of the stack, with states or attending");
  return made;
}

StackMetadata read_stack(const JsonReader& reader, const json& value) {
  StackMetadata stack;
  stack.name = reader.text("n", 32);
  stack.layers = static_cast<int>(reader.integer("l", 1, max_layers));
  stack.hidden = reader.integer("h", 0, max_width);
  stack.heads = reader.integer("a", 0, max_heads);
  stack.kv_heads = reader.integer("k", 0, max_heads, stack.heads);
  stack.head_dim = reader.integer("d", 0, max_width);
  stack.ffn = reader.integer("f", 0, max_width);
  stack.vocab = reader.integer("v", 0, max_units, 0);
  stack.positions = reader.integer("p", 0, max_units, 0);
  stack.causal = reader.flag("c", false);
  stack.media = reader.flag("m", false);
  stack.integers = reader.flag("i", false);
  stack.cross = reader.flag("x", false);
  stack.query_block = reader.integer("b", 0, max_units, 0);
  stack.relative_rows = reader.integer("r", 0, max_units, 0);
  stack.memory = reader.integer("y", 0, max_units, 0);
  stack.exchanges = reader.integer("e", 0, max_exchanges, 0);
  stack.rows_per_token = reader.integer("t", 1, max_rows_per_token, 1);
  stack.latent = reader.integer("u", 0, max_width, 0);
  stack.layer_inputs = reader.integer("j", 0, max_width, 0);
  check_heads(reader.path("k"), stack.heads, stack.kv_heads);
  if (reader.has("g")) {
    reader.list("g", max_layouts);
    for (size_t i = 0; i < value["g"].size(); ++i)
      stack.layouts.push_back(read_layout(value["g"][i], reader.path("g", i), stack.layers));
  }
  if (reader.has("w")) {
    reader.list("w", max_reuses);
    for (size_t i = 0; i < value["w"].size(); ++i)
      stack.reuses.push_back(read_reuse(value["w"][i], reader.path("w", i), stack));
  }
  if (reader.has("s")) stack.recurrence = read_recurrence(value["s"], reader.path("s"), stack.layers);
  int64_t apart = recurrent_layers(stack);
  for (const HeadLayout& layout : stack.layouts) apart += layers_in(layout.layers);
  for (const KeyReuse& reuse : stack.reuses) apart += layers_in(reuse.layers);
  if (apart > stack.layers)
    JsonReader::fail(reader.path("g"), std::to_string(apart) + " layers",
                     "at most the " + std::to_string(stack.layers) + " of the stack, each once");
  return stack;
}

/// [stack, first], [stack, first, count] or [stack, first, count, every].
Use read_use(const json& value, const std::string& path) {
  const char* form = "[stack, first, count, every] with the last two optional";
  if (!value.is_array() || value.size() < 2 || value.size() > 4) JsonReader::wrong(path, value, form);
  static constexpr const char* keys[] = {"stack", "first", "count", "every"};
  json named = json::object();
  for (size_t i = 0; i < value.size(); ++i) named[keys[i]] = value[i];
  const JsonReader reader(named, path);
  Use use{reader.text("stack", 32), static_cast<int>(reader.integer("first", stack_output, max_layers))};
  use.count = static_cast<int>(reader.integer("count", 1, max_layers, 1));
  use.every = static_cast<int>(reader.integer("every", 1, max_layers, 1));
  return use;
}

/// [elements, scales, scales of a block, elements and scales of groups of one head] with the last three optional.
Quantised read_quantised(const json& value, const std::string& path, const Part& part) {
  if (!value.is_array() || value.size() < 2 || value.size() > 5 || part.keep)
    JsonReader::wrong(path, value,
                      "[elements, scales, scales of a block, wide elements, their scales] with the last three "
                      "optional, of a part that is not kept");
  const auto at = [&](size_t i) { return i < value.size() ? value[i] : json(0); };
  const json named{{"elements", at(0)}, {"scales", at(1)}, {"blocks", at(2)}, {"wide", at(3)}, {"wideScales", at(4)}};
  const JsonReader reader(named, path);
  const int64_t most = part.elements_per_unit;  // no group has less than one element
  const int64_t elements = reader.integer("elements", 0, most), scales = reader.integer("scales", 0, most);
  return {elements, scales, reader.integer("blocks", 0, most), reader.integer("wide", 0, elements),
          reader.integer("wideScales", 0, scales)};
}

/// [scales per unit, scales of a rank], of I8A8.
void read_rows(const json& value, const std::string& path, Part& part) {
  const json items = items_of(value, path, "[scales per unit, scales of a rank]", {"rows", "shared"});
  const JsonReader reader(items, path);
  part.quantised.rows = reader.integer("rows", 0, part.elements_per_unit);
  part.quantised.shared_rows = reader.integer("shared", 0, max_elements);
}

/// [experts, experts of a token].
RoutedShare read_routed(const json& value, const std::string& path) {
  const json items = items_of(value, path, "[experts, experts of a token]", {"experts", "token"});
  const JsonReader reader(items, path);
  const int64_t experts = reader.integer("experts", 1, max_experts);
  return {experts, reader.integer("token", 1, experts)};
}

/// Returns whether two parts differ in their layers alone, so that JSON has them as one.
bool differ_in_layers(const Part& a, const Part& b) {
  Part moved = b;
  moved.first = a.first;
  moved.count = a.count;
  return a == moved && a.first >= 0 && b.first >= 0 && a.also.empty();
}

/// Appends the part once for each [first, count] of its key "i".
void expand_layers(const Part& part, const json& layers, const std::string& path, std::vector<Part>& parts) {
  if (layers.size() > max_layers) JsonReader::wrong(path, layers, "at most 4096 pairs of a first layer and a count");
  for (const json& one : layers) {
    if (!one.is_array() || one.size() != 2) JsonReader::wrong(path, one, "[first layer, count]");
    const json named{{"first", one[0]}, {"count", one[1]}};
    const JsonReader reader(named, path);
    Part& own = parts.emplace_back(part);
    own.first = static_cast<int>(reader.integer("first", 0, max_layers));
    own.count = static_cast<int>(reader.integer("count", 1, max_layers));
    if (parts.size() > max_parts)
      JsonReader::fail(path, "more than " + std::to_string(max_parts) + " parts in all", "fewer");
  }
}

Part read_part(const JsonReader& reader, const json& value, DType usual) {
  Part part;
  part.stack = reader.text("s", 32, "");
  if (!reader.has("i") || !value["i"].is_array())
    part.first = static_cast<int>(reader.integer("i", stack_output, max_layers, 0));
  part.count = static_cast<int>(reader.integer("n", 1, max_count, 1));
  const std::string axis = reader.text("x", 16, "none");
  if (!axis_of(axis))
    JsonReader::fail(reader.path("x"), "\"" + axis + "\"",
                     "one of none, heads, kv, kv_rows, ffn, vocab, positions, groups, latent");
  part.axis = *axis_of(axis);
  part.units = reader.integer("u", 1, max_units, 1);
  part.elements_per_unit = reader.integer("e", 0, max_elements);
  part.dtype = read_dtype(reader, "t", usual);
  part.keep = reader.flag("k", false);
  if (reader.has("q")) part.quantised = read_quantised(value["q"], reader.path("q"), part);
  if (reader.has("w")) read_rows(value["w"], reader.path("w"), part);
  if (reader.has("r")) part.routed = read_routed(value["r"], reader.path("r"));
  part.layout = static_cast<int>(reader.integer("l", 0, max_layouts, 0));
  if (!reader.has("a")) return part;
  reader.list("a", 64);
  for (size_t i = 0; i < value["a"].size(); ++i) part.also.push_back(read_use(value["a"][i], reader.path("a", i)));
  return part;
}

/// Throws when layers first, first + every, ... of `stack` do not all exist. A use outside the layers is one position.
void check_place(const ModelMetadata& metadata, const Use& use, const std::string& path) {
  if (use.stack.empty() && use.first == stack_input && use.count == 1) return;
  const auto stack = std::find_if(metadata.stacks.begin(), metadata.stacks.end(),
                                  [&](const StackMetadata& s) { return s.name == use.stack; });
  if (stack == metadata.stacks.end())
    JsonReader::fail(path, "a place in the stack \"" + use.stack + "\"", "a stack of the metadata, or -1 of \"\"");
  const int64_t last = use.first + (int64_t{use.count} - 1) * use.every;
  if (use.first < 0 ? use.count > 1 : last >= stack->layers) {
    JsonReader::fail(path, "layer " + std::to_string(last) + " of \"" + use.stack + "\"",
                     "one of its " + std::to_string(stack->layers) + " layers");
  }
}

/// Throws when the parts name stacks or layers that do not exist, or sum to more bytes than 64 bits hold.
void check(const ModelMetadata& metadata) {
  int64_t bytes = 0;
  for (size_t i = 0; i < metadata.parts.size(); ++i) {
    const Part& part = metadata.parts[i];
    const std::string path = "metadata.parts[" + std::to_string(i) + "]";
    if (part.axis == Axis::Heads || part.axis == Axis::Kv || part.axis == Axis::KvRows) {
      const auto named = [&](const StackMetadata& stack) { return stack.name == part.stack && stack.heads > 0; };
      if (std::none_of(metadata.stacks.begin(), metadata.stacks.end(), named))
        JsonReader::fail(path + ".s", "\"" + part.stack + "\"", "a stack with heads");
      const auto has_layout = [&](const StackMetadata& stack) {
        return stack.name == part.stack && part.layout <= static_cast<int>(stack.layouts.size());
      };
      if (std::none_of(metadata.stacks.begin(), metadata.stacks.end(), has_layout))
        JsonReader::fail(path + ".l", std::to_string(part.layout), "the number of a layout of its stack");
    }
    const auto size = static_cast<__int128>(part.units) * part.elements_per_unit * part.count * 8;
    if (size > max_bytes - bytes)
      JsonReader::fail(path, "more than 2^58 bytes in all", "a model that fits the address space");
    bytes += static_cast<int64_t>(size);
  }
  size_t uses = 0;
  for (size_t i = 0; i < metadata.parts.size(); ++i) {
    const Part& part = metadata.parts[i];
    const std::string path = "metadata.parts[" + std::to_string(i) + "]";
    check_place(metadata, {part.stack, part.first, part.count}, path);
    for (const Use& use : part.also) check_place(metadata, use, path + ".a");
    if (!part.also.empty() && part.count > 1)
      JsonReader::fail(path + ".n", std::to_string(part.count) + " layers",
                       "1 layer, for other places read them as well");
    if ((uses += part.also.size()) > max_uses)
      JsonReader::fail(path + ".a", "more than " + std::to_string(max_uses) + " places in all", "fewer");
  }
}

}  // namespace

json to_json(const ModelMetadata& metadata) {
  json stacks = json::array(), parts = json::array();
  for (const StackMetadata& stack : metadata.stacks) stacks.push_back(stack_json(stack));
  for (size_t i = 0; i < metadata.parts.size();) {
    const Part& part = metadata.parts[i];
    size_t end = i + 1;
    while (end < metadata.parts.size() && differ_in_layers(part, metadata.parts[end])) ++end;
    json& made = parts.emplace_back(part_json(part, metadata.dtype));
    if (end > i + 1) {
      made.erase("n");
      made["i"] = json::array();
      for (size_t own = i; own < end; ++own)
        made["i"].push_back({metadata.parts[own].first, metadata.parts[own].count});
    }
    i = end;
  }
  json out{{"model_type", metadata.model_type},
           {"architecture", metadata.architecture},
           {"task", metadata.task},
           {"dtype", name_of(metadata.dtype)},
           {"parameters", metadata.parameters},
           {"bytes", metadata.checkpoint_bytes},
           {"stacks", stacks},
           {"parts", parts}};
  if (!metadata.revision.empty()) out["revision"] = metadata.revision;
  if (metadata.adapter_elements > 0) out["adapters"] = metadata.adapter_elements;
  if (const auto& draft = metadata.draft)
    out["draft"] = {{"weights", draft->weights}, {"activations", draft->activations}, {"kv", draft->kv_per_token}};
  return out;
}

ModelMetadata metadata_from_json(const json& value) {
  const JsonReader reader(value, "metadata");
  ModelMetadata metadata;
  metadata.model_type = reader.text("model_type", 64);
  metadata.architecture = reader.text("architecture", 128);
  metadata.task = reader.text("task", 32);
  metadata.dtype = read_dtype(reader, "dtype", std::nullopt);
  metadata.parameters = reader.integer("parameters", 0, max_bytes);
  metadata.checkpoint_bytes = reader.integer("bytes", 0, max_bytes);
  metadata.revision = reader.text("revision", 128, "");
  metadata.adapter_elements = reader.integer("adapters", 0, max_bytes, 0);
  if (reader.has("draft")) {
    const JsonReader draft = reader.object("draft");
    metadata.draft = {draft.integer("weights", 0, max_bytes), draft.integer("activations", 0, max_bytes),
                      draft.integer("kv", 0, max_bytes)};
  }
  const json& stacks = reader.list("stacks", 16);
  for (size_t i = 0; i < stacks.size(); ++i) {
    metadata.stacks.push_back(read_stack({stacks[i], reader.path("stacks", i)}, stacks[i]));
    const auto same = [&](const StackMetadata& stack) { return stack.name == metadata.stacks.back().name; };
    if (std::count_if(metadata.stacks.begin(), metadata.stacks.end(), same) > 1)
      JsonReader::fail(reader.path("stacks", i), "a second \"" + metadata.stacks.back().name + "\"",
                       "stacks of different names");
  }
  const json& parts = reader.list("parts", 512);
  for (size_t i = 0; i < parts.size(); ++i) {
    const JsonReader own(parts[i], reader.path("parts", i));
    const Part part = read_part(own, parts[i], metadata.dtype);
    if (own.has("i") && parts[i]["i"].is_array())
      expand_layers(part, parts[i]["i"], own.path("i"), metadata.parts);
    else
      metadata.parts.push_back(part);
  }
  check(metadata);
  return metadata;
}

}  // namespace pm
