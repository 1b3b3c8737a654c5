// SPDX-License-Identifier: Apache-2.0
// Finds pipeline stages by bisection. The bytes of a stage never shrink when it grows, so filling each stage up to a
// limit gives the fewest stages for this limit. Bisection finds the smallest limit that needs at most p stages.
#include "planner/stages.h"

#include <algorithm>
#include <stdexcept>

namespace pm {

namespace {

std::string text(int64_t number) { return std::to_string(number); }

/// The positions of a part among the layers of all stacks: layers first, first + every, ... (`count` of them).
struct Run {
  size_t first = 0, count = 1, every = 1;
};

/// The cost of each layer: bytes of its own, and storages that it shares with other layers.
class Costs {
 public:
  Costs(const ModelMetadata& metadata, int tensor, DType dtype) : metadata_(metadata) {
    for (const StackMetadata& stack : metadata.stacks) {
      if (stack.layers < 1)
        throw std::invalid_argument("stack \"" + stack.name + "\" has no layers; stages are split between layers");
      offsets_.push_back(layers_);
      layers_ += static_cast<size_t>(stack.layers);
    }
    own_.resize(layers_, 0);
    shared_.resize(layers_);
    for (const Part& part : metadata.parts) {
      const bool whole = part.axis == Axis::None || part.axis == Axis::Latent;
      const int64_t units = whole ? part.units : (part.units + tensor - 1) / tensor;
      add(part, held_bytes(metadata, part, units, dtype));
    }
  }

  size_t layers() const { return layers_; }
  int64_t own(size_t layer) const { return own_[layer]; }
  /// Returns the bytes that the layer reads, including storage that earlier layers read as well.
  int64_t work(size_t layer) const {
    int64_t sum = own_[layer];
    for (const size_t id : shared_[layer]) sum += storages_[id];
    return sum;
  }
  const std::vector<size_t>& shared(size_t layer) const { return shared_[layer]; }
  int64_t storage(size_t id) const { return storages_[id]; }
  size_t storages() const { return storages_.size(); }

 private:
  Run run(const Use& use) const {
    if (use.stack.empty()) return {layers_ - 1};
    for (size_t i = 0; i < offsets_.size(); ++i) {
      if (metadata_.stacks[i].name != use.stack) continue;
      const auto layers = static_cast<size_t>(metadata_.stacks[i].layers);
      if (use.first < 0) return {offsets_[i] + (use.first == stack_output ? layers - 1 : 0)};
      const Run run{offsets_[i] + static_cast<size_t>(use.first), static_cast<size_t>(use.count),
                    static_cast<size_t>(use.every)};
      if (run.first + (run.count - 1) * run.every >= offsets_[i] + layers) break;
      return run;
    }
    throw std::invalid_argument("the model metadata has a part in layer " + text(use.first) + " of \"" + use.stack +
                                "\", which is not there");
  }

  void add(const Part& part, int64_t bytes) {
    const Run home = run({part.stack, part.first, part.first < 0 ? 1 : part.count});
    if (part.also.empty()) {
      for (size_t i = 0; i < home.count; ++i) own_[home.first + i] += bytes;
      return;
    }
    std::vector<Run> runs{home};
    for (const Use& use : part.also) runs.push_back(run(use));
    for (const Run& one : runs) {
      for (size_t i = 0; i < one.count; ++i) {
        std::vector<size_t>& here = shared_[one.first + i * one.every];
        if (here.empty() || here.back() != storages_.size()) here.push_back(storages_.size());
      }
    }
    storages_.push_back(bytes);
  }

  const ModelMetadata& metadata_;
  size_t layers_ = 0;
  std::vector<size_t> offsets_;  ///< of each stack's first layer
  std::vector<int64_t> own_;
  std::vector<std::vector<size_t>> shared_;  ///< per layer: its storages
  std::vector<int64_t> storages_;            ///< bytes
};

/// A contiguous window of layers that grows at its end and shrinks at its begin, with its bytes.
class Window {
 public:
  explicit Window(const Costs& costs) : costs_(costs), uses_(costs.storages(), 0) {}
  int64_t bytes() const { return bytes_; }
  void push(size_t layer) {
    bytes_ += costs_.own(layer);
    for (const size_t id : costs_.shared(layer)) {
      if (uses_[id]++ == 0) bytes_ += costs_.storage(id);
    }
  }
  void pop(size_t layer) {
    bytes_ -= costs_.own(layer);
    for (const size_t id : costs_.shared(layer)) {
      if (--uses_[id] == 0) bytes_ -= costs_.storage(id);
    }
  }

 private:
  const Costs& costs_;
  std::vector<int> uses_;
  int64_t bytes_ = 0;
};

/// Returns, for each layer, the end of the longest stage that begins there within `limit` bytes, or its own index when
/// the layer alone exceeds the limit.
std::vector<size_t> reaches(const Costs& costs, int64_t limit) {
  std::vector<size_t> reach(costs.layers());
  Window window(costs);
  size_t end = 0;
  for (size_t begin = 0; begin < costs.layers(); ++begin) {
    for (end = std::max(end, begin); end < costs.layers(); ++end) {
      window.push(end);
      if (window.bytes() > limit) {
        window.pop(end);
        break;
      }
    }
    reach[begin] = end;
    if (end > begin) window.pop(begin);
  }
  return reach;
}

/// Returns the fewest stages that the layers from each index on need, or more than the number of layers where one layer
/// is too large.
std::vector<size_t> needs(const std::vector<size_t>& reach) {
  std::vector<size_t> need(reach.size() + 1, 0);
  for (size_t i = reach.size(); i-- > 0;)
    need[i] = reach[i] == i ? reach.size() + 1 : std::min(need[reach[i]] + 1, reach.size() + 1);
  return need;
}

/// Returns the end of the stage that begins at `begin` when `left` stages remain, itself included. The stage is within
/// the limit, leaves enough layers to the others, and has the work nearest to their mean.
size_t end_of(const Costs& costs, size_t begin, size_t left, const std::vector<size_t>& reach,
              const std::vector<size_t>& need) {
  if (left == 1) return costs.layers();
  int64_t all = 0, here = 0, distance = -1;
  for (size_t layer = begin; layer < costs.layers(); ++layer) all += costs.work(layer);
  size_t best = begin + 1;
  for (size_t end = begin + 1; end <= reach[begin] && costs.layers() - end >= left - 1; ++end) {
    here += costs.work(end - 1);
    if (need[end] > left - 1) continue;
    const int64_t off = std::abs(here - all / static_cast<int64_t>(left));
    if (distance < 0 || off <= distance) best = end, distance = off;
  }
  return best;
}

Layers layers_between(const ModelMetadata& metadata, size_t begin, size_t end) {
  Layers out;
  auto offset = int64_t{0};
  for (const StackMetadata& stack : metadata.stacks) {
    const auto clip = [&](size_t layer) {
      return std::clamp<int64_t>(static_cast<int64_t>(layer) - offset, 0, stack.layers);
    };
    out.push_back({stack.name, {clip(begin), clip(end)}});
    offset += stack.layers;
  }
  return out;
}

/// The layers of one stage, checked against the stacks of the metadata.
class Held {
 public:
  Held(const ModelMetadata& metadata, const Layers& layers) : metadata_(metadata), layers_(layers) {
    bool good = layers.size() == metadata.stacks.size();
    for (size_t i = 0; good && i < layers.size(); ++i) {
      const Range range = layers[i].second;
      good = layers[i].first == metadata.stacks[i].name && range.begin >= 0 && range.begin <= range.end &&
             range.end <= metadata.stacks[i].layers;
    }
    if (!good)
      throw std::invalid_argument("the layers of a stage are not those of " + metadata.architecture +
                                  "; expected a range of each of its " +
                                  text(static_cast<int64_t>(metadata.stacks.size())) + " stacks");
  }

  bool all() const {
    for (size_t i = 0; i < layers_.size(); ++i)
      if (layers_[i].second != Range{0, metadata_.stacks[i].layers}) return false;
    return true;
  }
  bool first() const { return metadata_.stacks.empty() || input(0); }
  bool last() const { return metadata_.stacks.empty() || output(metadata_.stacks.size() - 1); }
  int layers(size_t stack) const { return static_cast<int>(layers_[stack].second.size()); }

  /// Returns the positions of `use` that this stage holds, if there are any.
  std::optional<Use> clip(const Use& use) const {
    if (use.stack.empty()) return last() ? std::optional(use) : std::nullopt;
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (layers_[i].first != use.stack) continue;
      if (use.first < 0) return (use.first == stack_output ? output(i) : input(i)) ? std::optional(use) : std::nullopt;
      const Range range = layers_[i].second;
      const auto steps = [&](int64_t layer) {
        return layer <= use.first ? 0 : std::min<int64_t>((layer - use.first + use.every - 1) / use.every, use.count);
      };
      const int64_t from = steps(range.begin), to = steps(range.end);
      if (from >= to) return std::nullopt;
      Use out{use.stack, static_cast<int>(use.first + from * use.every), static_cast<int>(to - from), use.every};
      if (out.count == 1) out.every = 1;
      return out;
    }
    return std::nullopt;
  }

 private:
  bool input(size_t stack) const { return layers_[stack].second.begin == 0 && layers_[stack].second.end > 0; }
  bool output(size_t stack) const {
    return layers_[stack].second.size() > 0 && layers_[stack].second.end == metadata_.stacks[stack].layers;
  }
  const ModelMetadata& metadata_;
  const Layers& layers_;
};

/// Returns the part clipped to the stage, or nothing when the stage holds none of it.
std::optional<Part> clipped(const Part& part, const Held& held) {
  std::vector<Use> here;
  if (auto home = held.clip({part.stack, part.first, part.count})) here.push_back(*home);
  for (const Use& use : part.also) {
    if (auto one = held.clip(use)) here.push_back(*one);
  }
  if (here.empty()) return std::nullopt;
  Part out = part;
  out.stack = here[0].stack;
  out.first = here[0].first;
  out.also.assign(here.begin() + 1, here.end());
  if (part.also.empty()) {
    out.count = here[0].count;
  } else if (here[0].count > 1) {  // the first of several layers is the owner
    out.also.insert(out.also.begin(), {here[0].stack, here[0].first + here[0].every, here[0].count - 1,
                                       here[0].count > 2 ? here[0].every : 1});
  }
  return out;
}

/// Returns the runs of layers of a stack clipped to the stage.
std::vector<LayerRun> clipped(const std::vector<LayerRun>& runs, const Held& held, const std::string& stack) {
  std::vector<LayerRun> here;
  for (const LayerRun& run : runs)
    if (const auto use = held.clip({stack, run.first, run.count, run.every}))
      here.push_back({use->first, use->count, use->every});
  return here;
}

/// Leaves the layers of a recurrent stack that the stage holds.
void clip_recurrence(StackMetadata& stack, const Held& held) {
  Recurrence& recurrence = stack.recurrence;
  recurrence.attending = clipped(recurrence.attending, held, stack.name);
  recurrence.layers = clipped(recurrence.layers, held, stack.name);
  if (layers_in(recurrence.attending) == stack.layers) recurrence = {};
}

/// Clips what layers cache, and which of them read it, to the stage. Where a stage lacks the layer that they read, it
/// keeps a copy, which is counted as what its first reader caches.
void clip_caches(StackMetadata& stack, const Held& held) {
  for (HeadLayout& layout : stack.layouts) layout.layers = clipped(layout.layers, held, stack.name);
  std::vector<KeyReuse> reuses;
  for (KeyReuse reuse : stack.reuses) {
    reuse.layers = clipped(reuse.layers, held, stack.name);
    if (reuse.layers.empty()) continue;
    if (!held.clip({stack.name, reuse.source})) {
      LayerRun& run = reuse.layers.front();
      if (reuse.layout > 0) stack.layouts[static_cast<size_t>(reuse.layout) - 1].layers.push_back({run.first, 1, 1});
      reuse.source = run.first;
      run.first += run.every;
      if (--run.count == 0) reuse.layers.erase(reuse.layers.begin());
    }
    if (!reuse.layers.empty()) reuses.push_back(std::move(reuse));
  }
  stack.reuses = std::move(reuses);
}

}  // namespace

Layers all_layers(const ModelMetadata& metadata) {
  Layers out;
  for (const StackMetadata& stack : metadata.stacks) out.push_back({stack.name, {0, stack.layers}});
  return out;
}

std::vector<Layers> stages(const ModelMetadata& metadata, int p, int tensor, DType dtype) {
  if (p < 1) throw std::invalid_argument("cannot split layers into " + text(p) + " stages; at least 1 is needed");
  if (p == 1) return {all_layers(metadata)};
  const Costs costs(metadata, std::max(tensor, 1), dtype);
  const auto count = static_cast<size_t>(p);
  if (count > costs.layers()) {
    throw std::invalid_argument(metadata.architecture + " has " + text(static_cast<int64_t>(costs.layers())) +
                                " layers, too few for " + text(p) + " stages; use at most " +
                                text(static_cast<int64_t>(costs.layers())));
  }
  Window all(costs);
  for (size_t layer = 0; layer < costs.layers(); ++layer) all.push(layer);
  int64_t low = 0, high = all.bytes();
  while (low < high) {
    const int64_t limit = low + (high - low) / 2;
    if (needs(reaches(costs, limit))[0] <= count)
      high = limit;
    else
      low = limit + 1;
  }
  const std::vector<size_t> reach = reaches(costs, high), need = needs(reach);
  std::vector<Layers> out;
  for (size_t begin = 0; out.size() < count;) {
    const size_t end = end_of(costs, begin, count - out.size(), reach, need);
    out.push_back(layers_between(metadata, begin, end));
    begin = end;
  }
  return out;
}

ModelMetadata stage_metadata(const ModelMetadata& metadata, const Layers& layers) {
  const Held held(metadata, layers);
  if (held.all()) return metadata;
  ModelMetadata out = metadata;
  out.stacks.clear();
  out.parts.clear();
  out.parameters = out.checkpoint_bytes = 0;
  for (size_t i = 0; i < metadata.stacks.size(); ++i) {
    if (held.layers(i) == 0) continue;
    StackMetadata& stack = out.stacks.emplace_back(metadata.stacks[i]);
    stack.layers = held.layers(i);
    if (!held.first() && !held.last()) stack.vocab = 0;
    if (stack.recurrence.units > 0) clip_recurrence(stack, held);
    clip_caches(stack, held);
  }
  for (const Part& part : metadata.parts) {
    auto here = clipped(part, held);
    if (!here) continue;
    const int64_t elements = here->units * here->elements_per_unit * here->count;
    out.parameters += elements;
    out.checkpoint_bytes += elements * size_of(here->dtype);
    out.parts.push_back(*std::move(here));
  }
  return out;
}

}  // namespace pm
