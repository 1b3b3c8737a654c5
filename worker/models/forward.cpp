// SPDX-License-Identifier: Apache-2.0
// Model::forward: how data flows through stacks and heads for one or more requests, whose rows run together.
#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "worker/models/joined.h"
#include "worker/models/model.h"
#include "worker/models/requests/request_memory.h"
#include "worker/models/requests/stream_states.h"
#include "worker/models/requests/two_streams.h"
#include "worker/models/stage_keys.h"
#include "worker/models/stage_rows.h"

namespace pm::models {

namespace {

/// Returns the source of cross-attention: the states of all requests, concatenated in the order of their rows.
layers::Source source_of(const at::Tensor& states, const std::vector<const StackInput*>& stack_inputs,
                         const std::vector<const StackInput*>& seen) {
  layers::Source source;
  source.states = states;
  int64_t row = 0, seen_row = 0;
  for (size_t part = 0; part < stack_inputs.size(); ++part) {
    const auto &sequences = stack_inputs[part]->batch.sequences.spans, &others = seen[part]->batch.sequences.spans;
    for (size_t i = 0; i < sequences.size(); ++i) {
      source.sequences.spans.push_back({.first = row + sequences[i].first,
                                        .tokens = sequences[i].tokens,
                                        .context = 0,
                                        .keys = others[i].tokens,
                                        .key_row = seen_row + others[i].first,
                                        .blocks = {}});
    }
    row += stack_inputs[part]->batch_rows();
    seen_row += seen[part]->batch_rows();
  }
  return source;
}

/// Returns whether a head of the stack reads the hidden states of all layers.
bool mixes_layers(const policy::Model& model, const policy::Stack& stack) {
  return std::any_of(model.heads.begin(), model.heads.end(),
                     [&](const policy::Head& head) { return head.stack == stack.name && head.layer_weights; });
}

/// Returns whether the normalized frames of a stack are an output, or read by a head.
bool needs_features(const policy::Model& model, const policy::Stack& stack) {
  const auto& convolutions = stack.input.convolutions;
  return convolutions && (!convolutions->features.empty() ||
                          std::any_of(model.heads.begin(), model.heads.end(), [&](const policy::Head& head) {
                            return head.stack == stack.name && head.as<policy::CodebookSpec>();
                          }));
}

/// Returns whether a head reads the maps of a stack's backbone.
bool needs_maps(const policy::Model& model, const policy::Stack& stack) {
  return std::any_of(model.heads.begin(), model.heads.end(), [&](const policy::Head& head) {
    const auto* masks = head.as<policy::MasksSpec>();
    return masks && masks->cells == stack.name;
  });
}

/// Returns what stands for padding among attentions: transformers adds the lowest number to scores.
float shown_of_padding(const policy::Attention& attention) {
  return attention.shows_scores ? std::numeric_limits<float>::lowest() : 0;
}

/// Returns whether a class puts out the states of its stacks: one without heads, or with heads of vectors.
bool is_bare(const policy::Model& model) {
  return model.task == policy::Task::Embed || model.task == policy::Task::Similarity ||
         model.task == policy::Task::DetectObjects || model.heads.empty();
}

/// Where the rows and sequences of a request begin among those of all requests.
struct Place {
  std::vector<int64_t> rows;  ///< of each hidden state; one number where all have the same rows
  size_t sequence = 0;
  int64_t row(size_t hidden_state) const { return rows[std::min(hidden_state, rows.size() - 1)]; }
};

/// Stores the states of the second stream of a stack that joins two. `states` and `hidden` are those of all rows, and
/// the request's begin at `row`.
void take_second_stream(const policy::Model& model, const policy::Stack& stack, const at::Tensor& states,
                        const std::vector<at::Tensor>& hidden, int64_t row, RequestForward& request) {
  const StackInput& stack_input = request.inputs.stack_inputs.at(stack.joins[1]);
  const StackNames names = stack_names(model, stack, 1);
  const auto put = [&](const std::string& name, const at::Tensor& values) {
    request.put(name, stack_input.padded(values.narrow(0, row, stack_input.batch_rows())));
  };
  if (request.wants(names.states, is_bare(model))) put(names.states, states);
  for (size_t i = 0; request.wanted.hidden_states && i < hidden.size(); ++i) put(names.hidden_state(i), hidden[i]);
}

/// Stores the attentions of one layer. Of two streams the first is seen to attend to the second.
void put_attentions(const policy::Stack& stack, size_t layer, const std::vector<at::Tensor>& own,
                    const std::string& name, RequestForward& request) {
  const policy::Layer& one = stack.layers[layer];
  const int64_t read = policy::hidden_state_of(stack, static_cast<int64_t>(layer));
  const StackInput& queries = request.inputs.rows_of(stack.name, read + 1);
  const bool reads_unpooled = one.pooling && one.pooling->queries_only;
  if (stack.memory)
    return request.put(name, queries.padded(own, memory_keys(*stack.memory, queries), shown_of_padding(one.attention)));
  if (queries.has_targets) {  // those of targets are not put out
    const int64_t tokens = queries.tokens;
    const at::Tensor all = queries.padded(own, queries, shown_of_padding(one.attention));
    return request.put(name + ".0", all.narrow(2, 0, tokens).narrow(3, 0, tokens));
  }
  const StackInput& keys = !stack.joins.empty() ? request.inputs.stack_inputs.at(stack.joins[1])
                           : reads_unpooled     ? request.inputs.rows_of(stack.name, read)
                                                : queries;
  request.put(name, queries.padded(own, keys, shown_of_padding(one.attention)));
}

std::string memory_name(const policy::Memory& memory, size_t layer) {
  return memory.input + "." + std::to_string(layer);
}

/// Returns whether a request wants the memories behind its tokens. They are put out where they are named alone: each is
/// as large as what came in.
bool wants_memory(const policy::Stack& stack, const RequestForward& request) {
  for (size_t layer = 0; stack.memory && layer < stack.layers.size(); ++layer)
    if (request.wants(memory_name(*stack.memory, layer), false)) return true;
  return false;
}

/// Stores the memories that are wanted. `hidden` are the states of all requests, and this one's begin at `row`.
void put_memory(const policy::Stack& stack, const std::vector<at::Tensor>& hidden, int64_t row,
                RequestForward& request) {
  const StackInput& tokens = request.inputs.stack_inputs.at(stack.name);
  const std::vector<at::Tensor>& before = tokens.batch.memory;
  for (size_t layer = 0; layer < stack.layers.size(); ++layer) {
    const std::string name = memory_name(*stack.memory, layer);
    if (request.wants(name, false))
      request.put(name, next_memory(*stack.memory, tokens, before.empty() ? at::Tensor() : before[layer],
                                    hidden.at(layer).narrow(0, row, tokens.batch_rows())));
  }
}

/// Stores the outputs of a stack for one request. States and `capture` cover all requests.
void take_states(const policy::Model& model, const policy::Stack& stack, const at::Tensor& all_states,
                 const layers::Capture& capture, const Place& place, RequestForward& request) {
  const StackInput& stack_input = request.inputs.stack_inputs.at(stack.name);
  const StackInput& last = request.inputs.rows_of(stack.name);
  const int64_t row = place.row(0);
  const StackNames names = stack_names(model, stack);
  const int64_t rows = stack_input.batch_rows(), streams = stack.input.stream_count();
  // states that went on in a stack that joins this one are not here any more
  const at::Tensor states =
      all_states.defined() ? all_states.narrow(0, place.rows.back(), last.batch_rows()) : at::Tensor();
  request.states[stack.name] = states;
  const bool bare = is_bare(model) || names.states == "encoder_last_hidden_state";
  const bool targets = stack_input.has_targets;
  const int64_t others = stack.input.entities || targets ? stack_input.length - stack_input.tokens : 0;
  // of tokens, and of entities or targets; an empty name is not put out
  const auto put = [&](const std::string& tokens, const std::string& entities, const StackInput& of,
                       const at::Tensor& values) {
    if (tokens.empty() && (entities.empty() || others == 0)) return;
    const at::Tensor all = of.padded(values);
    if (!tokens.empty()) request.put(tokens, others > 0 ? all.narrow(1, 0, stack_input.tokens) : all);
    if (!entities.empty() && others > 0) request.put(entities, all.narrow(1, stack_input.tokens, others));
  };
  const auto wanted = [&](const std::string& name) { return request.wants(name, bare) ? name : std::string(); };
  put(targets ? "" : wanted(names.states), wanted(targets ? names.states : names.entity_states), last, states);
  const auto put_streams = [&](const std::string& name, const at::Tensor& all) {
    if (streams > 0) request.put(name, padded_streams(stack_input, states_of_streams(all, streams, row, rows)));
  };
  if (streams > 0) request.streams[stack.name] = states_of_streams(all_states, streams, row, rows);
  if (request.wants(names.stream_states, bare)) put_streams(names.stream_states, all_states);
  const bool projected = std::any_of(model.heads.begin(), model.heads.end(), [&](const policy::Head& head) {
    return head.stack == stack.name && is_compared(model, head.name);
  });
  if (stack.output.pooler && !projected && request.wants(names.pooled, bare))
    request.put(names.pooled, request.pooled.at(stack.name));
  if (capture.audio_features.defined()) {
    const at::Tensor& features = request.features[stack.name] =
        capture.audio_features.narrow(0, row, stack_input.batch_rows());
    const std::string& name = stack.input.convolutions->features;
    if (!name.empty() && request.wants(name, bare)) request.put(name, stack_input.padded(features));
  }
  if (mixes_layers(model, stack)) {
    for (const at::Tensor& states_before : capture.hidden)
      request.hidden[stack.name].push_back(states_before.narrow(0, row, stack_input.batch_rows()));
  }
  if (request.comm.rank() != 0) return;
  if (wants_memory(stack, request)) put_memory(stack, capture.hidden, row, request);
  const auto own = [&](const std::vector<at::Tensor>& all) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(place.sequence);
    return std::vector<at::Tensor>(begin,
                                   begin + static_cast<std::ptrdiff_t>(stack_input.batch.sequences.spans.size()));
  };
  for (size_t i = 0; request.wanted.hidden_states && i < capture.hidden.size(); ++i) {
    const StackInput& of = request.inputs.rows_of(stack.name, static_cast<int64_t>(i));
    const at::Tensor own_states = capture.hidden[i].narrow(0, place.row(i), of.batch_rows());
    if (targets)  // transformers has those of tokens and of targets in turn
      put(names.hidden_state(2 * i), names.hidden_state(2 * i + 1), of, own_states);
    else
      put(names.hidden_state(i), names.entity_hidden + std::to_string(i), of, own_states);
    put_streams(names.stream_hidden + std::to_string(i), capture.hidden[i]);
  }
  int64_t attending = 0;
  for (size_t i = 0; i < capture.attention.size(); ++i) {
    if (capture.attention[i].empty()) continue;  // of a recurrent layer, which transformers leaves out
    const std::string number = std::to_string(attending++);
    if (i >= capture.global.size()) {
      put_attentions(stack, i, own(capture.attention[i]), names.attentions + number, request);
      if (i < capture.streams.size())
        request.put(names.stream_attentions + number, padded_stream_attentions(stack_input, own(capture.streams[i])));
      continue;
    }
    const std::vector<at::Tensor> global = own(capture.global[i]);
    request.put(names.attentions + number, stack_input.padded_windows(own(capture.attention[i]), global));
    if (std::any_of(global.begin(), global.end(), [](const at::Tensor& one) { return one.size(2) > 0; }))
      request.put(names.global + number, stack_input.padded_windows(global, global));
  }
  if (capture.cross.empty()) return;
  if (stack.input.latents) {  // what latents saw of the input, and what the queries behind them saw of latents
    const StackInput &latents = request.inputs.rows_of(stack.name, 0), *queries[] = {&latents, &last},
                     *keys[] = {&stack_input, &latents};
    for (size_t i = 0; i < capture.cross.size(); ++i)
      request.put(names.cross + std::to_string(i), queries[i]->padded(own(capture.cross[i]), *keys[i]));
    return;
  }
  const StackInput& seen = request.inputs.stack_inputs.at(stack.layers[0].cross->source);
  for (size_t i = 0; i < capture.cross.size(); ++i)
    request.put(names.cross + std::to_string(i),
                padded_cross_attentions(stack_input, streams, own(capture.cross[i]), seen,
                                        shown_of_padding(*stack.layers[i].cross)));
}

/// Stores what a tower has made of the images of each request. `rows` are those of all, one after another, as many for
/// each state of the tower.
void put_image_rows(const at::Tensor& rows, const policy::Stack& tower, const std::vector<RequestForward*>& requests) {
  int64_t states = 0, first = 0;
  for (const RequestForward* request : requests) states += request->inputs.stack_inputs.at(tower.name).batch_rows();
  for (RequestForward* request : requests) {
    const int64_t own = request->inputs.stack_inputs.at(tower.name).batch_rows() * rows.size(0) / states;
    // transformers puts out the rows of images that a request has whole
    if (request->wants(policy::image_rows_output, !tower.input.patch_grid || !tower.input.patch_grid->sizes.empty()))
      request->put(policy::image_rows_output, rows.narrow(0, first, own));
    first += own;
  }
}

/// Adds what the layers from `first` on captured. Ranks without captured tensors add nothing.
void hand(StageState& handed, const policy::Stack& stack, int64_t first, const layers::Capture& capture) {
  const int64_t states_before = first == 0 ? 0 : policy::hidden_state_of(stack, first - 1) + 1;
  for (size_t i = 0; i < capture.hidden.size(); ++i)
    handed[stage_key("hidden", stack, states_before + static_cast<int64_t>(i))] = capture.hidden[i];
  if (capture.audio_features.defined()) handed[stage_key("features", stack)] = capture.audio_features;
  for (size_t level = 0; level < capture.maps.size(); ++level) {
    for (size_t request = 0; request < capture.maps[level].size(); ++request)
      handed[stage_key("maps", stack, static_cast<int64_t>(level), request)] = capture.maps[level][request];
  }
  const auto sequences = [&](const char* what, const std::vector<std::vector<at::Tensor>>& all) {
    for (size_t i = 0; i < all.size(); ++i) {
      for (size_t j = 0; j < all[i].size(); ++j)
        if (all[i][j].defined()) handed[stage_key(what, stack, first + static_cast<int64_t>(i), j)] = all[i][j];
    }
  };
  sequences("attention", capture.attention);
  sequences("cross", capture.cross);
  sequences("global", capture.global);
  sequences("streams", capture.streams);
}

/// Returns all that the stages captured of a stack with this number of sequences.
layers::Capture captured(const StageState& handed, const policy::Stack& stack, size_t sequences) {
  layers::Capture capture;
  const auto find = [&](const std::string& key) {
    const auto found = handed.find(key);
    return found == handed.end() ? at::Tensor() : found->second;
  };
  capture.audio_features = find(stage_key("features", stack));
  const int64_t states = policy::hidden_state_of(stack, static_cast<int64_t>(stack.layers.size()));
  for (int64_t i = 0; i <= states; ++i) {
    if (const at::Tensor hidden = find(stage_key("hidden", stack, i)); hidden.defined())
      capture.hidden.push_back(hidden);
    for (const auto& [what, all] : {std::pair{"attention", &capture.attention}, std::pair{"cross", &capture.cross},
                                    std::pair{"global", &capture.global}, std::pair{"streams", &capture.streams}}) {
      const bool has = find(stage_key(what, stack, i, 0)).defined();
      if (!has && (all != &capture.attention || !policy::is_recurrent(stack))) continue;
      auto& layer = all->emplace_back();
      if (!has) continue;
      for (size_t j = 0; j < sequences; ++j) layer.push_back(find(stage_key(what, stack, i, j)));
    }
  }
  return capture;
}

}  // namespace

void Model::run_stack(size_t number, std::vector<RequestForward>& forwards, StageState& handed) const {
  const policy::Stack& stack = policy_.stacks[number];
  std::vector<RequestForward*> with;
  std::vector<const StackInput*> stack_inputs, seen;
  const auto& cross = stack.layers[0].cross;
  for (RequestForward& request : forwards) {
    const auto found = request.inputs.stack_inputs.find(stack.name);
    if (found == request.inputs.stack_inputs.end()) continue;
    with.push_back(&request);
    stack_inputs.push_back(&found->second);
    if (cross) seen.push_back(&request.inputs.stack_inputs.at(cross->source));
    if (!stack.joins.empty()) seen.push_back(&request.inputs.stack_inputs.at(stack.joins[1]));
  }
  if (with.empty()) return;
  at::Tensor& states = handed[stack.name];
  if (const Stack* here = stacks_[number].get()) {
    const OutputSelection& wanted = with[0]->wanted;
    layers::Capture capture{
        .hidden_states = wanted.hidden_states || mixes_layers(policy_, stack) || wants_memory(stack, *with[0]),
        .attentions = wanted.attentions,
        .features = needs_features(policy_, stack),
        .hidden = {},
        .attention = {},
        .cross = {},
        .global = {},
        .streams = {},
        .audio_features = {},
        .feature_maps = needs_maps(policy_, stack),
        .maps = {}};
    layers::Batch batch = joined(stack_inputs);
    if (!stack.joins.empty()) batch = two_streams(batch, joined(seen));
    if (!stack.joins.empty() && here->range().begin == 0) {
      states = at::cat({handed.at(stack.joins[0]), handed.at(stack.joins[1])});
      for (const std::string& name : stack.joins) handed[name] = at::Tensor();  // no later stage reads them
    }
    batch.streams = stack.input.stream_count();
    if (capture.hidden_states || capture.attentions || capture.features || capture.feature_maps)
      batch.capture = &capture;
    const std::string positions = stage_key("positions", stack);
    if (const auto found = handed.find(positions); found != handed.end()) batch.added_positions = found->second;
    layers::Source source;
    if (cross) {
      const policy::Stack& other = *policy_.stack(cross->source);
      const bool projected = other.output.cross_projection.has_value();
      source = source_of(handed.at(projected ? stage_key("source", other) : other.name), stack_inputs, seen);
      const auto found = handed.find(stage_key("positions", other));
      if (found != handed.end()) source.added_positions = found->second;
    }
    if (batch.images.places.defined() && here->range().begin < 1 + stack.input.images->deepstack)
      batch.images.values = handed.at(stage_key("images", *policy_.stack(stack.input.images->stack)));
    if (const auto skipped = handed.find(stage_key("skipped", stack)); skipped != handed.end())
      batch.skipped = std::exchange(skipped->second, {});
    for (const policy::DeepProjector& deep : stack.output.deep_projectors)
      if (const auto found = handed.find(stage_key("deep", stack, deep.layer)); found != handed.end())
        batch.deep[deep.layer] = std::exchange(found->second, {});
    StageRows beside(stack, *here, handed, batch);
    states = (*here)(states, batch, nullptr, cross ? &source : nullptr, with[0]->comm);
    beside.hand_on();
    if (batch.skipped.defined()) handed[stage_key("skipped", stack)] = batch.skipped;
    hand(handed, stack, here->range().begin, capture);
    if (batch.added_positions.defined()) handed[positions] = batch.added_positions;
    if (here->ends() && stack.output.cross_projection) handed[stage_key("source", stack)] = here->source(states);
    if (here->ends() && stack.output.image_projector) {
      handed[stage_key("images", stack)] = here->image_rows(states, batch);
      states = at::Tensor();  // nothing else reads them
    } else {
      for (auto& [layer, kept] : batch.deep) handed[stage_key("deep", stack, layer)] = kept;
    }
    if (here->ends() && stack.output.pooler) pool(stack, *here, with, stack_inputs, handed);
  }
  if (!last_) return;
  if (stack.output.image_projector) return put_image_rows(handed.at(stage_key("images", stack)), stack, with);
  size_t sequences = 0;
  for (const StackInput* stack_input : stack_inputs) sequences += stack_input->batch.sequences.spans.size();
  const layers::Capture capture = captured(handed, stack, sequences);
  const at::Tensor& shown = stack.output.shows_projected ? handed.at(stage_key("source", stack)) : states;
  Place place;
  place.rows.resize(policy::changes_rows(stack) ? with[0]->inputs.rows_of_states.at(stack.name).size() : 1);
  for (size_t i = 0; i < with.size(); ++i) {
    const size_t own = stack_inputs[i]->batch.sequences.spans.size();
    if (stack.output.pooler)
      with[i]->pooled[stack.name] = handed.at(stage_key("pooled", stack))
                                        .narrow(0, static_cast<int64_t>(place.sequence), static_cast<int64_t>(own));
    for (int64_t level = 0; needs_maps(policy_, stack) && handed.contains(stage_key("maps", stack, level, i)); ++level)
      with[i]->maps.push_back(handed.at(stage_key("maps", stack, level, i)));
    take_states(policy_, stack, shown, capture, place, *with[i]);
    for (size_t state = 0; state < place.rows.size(); ++state)
      place.rows[state] += with[i]->inputs.rows_of(stack.name, static_cast<int64_t>(state)).batch_rows();
    place.sequence += own;
  }
  if (stack.joins.empty()) return;
  int64_t row = place.rows[0];  // behind the rows of all first streams
  for (size_t i = 0; i < with.size(); ++i) {
    take_second_stream(policy_, stack, states, capture.hidden, row, *with[i]);
    row += seen[i]->batch_rows();
  }
}

/// Stores the pooled vectors of all requests, concatenated, on the stage that has the pooler.
void Model::pool(const policy::Stack& stack, const Stack& here, const std::vector<RequestForward*>& forwards,
                 const std::vector<const StackInput*>& stack_inputs, StageState& handed) {
  std::vector<at::Tensor> chosen;
  int64_t row = 0;
  for (size_t i = 0; i < forwards.size(); ++i) {
    const int64_t rows = stack_inputs[i]->batch_rows();
    chosen.push_back(forwards[i]->select(stack.output.pooler->pool, stack, handed.at(stack.name).narrow(0, row, rows)));
    row += rows;
  }
  handed[stage_key("pooled", stack)] = here.pooled(at::cat(chosen));
}

std::vector<Arrays> Model::forward(std::span<const Inputs> requests, const OutputSelection& wanted, StageState& handed,
                                   comm::Communicator& comm) const {
  std::vector<RequestForward> forwards;
  for (const Inputs& inputs : requests)
    forwards.push_back(RequestForward{.inputs = inputs, .wanted = wanted, .comm = comm});
  for (size_t i = 0; i < stacks_.size(); ++i) run_stack(i, forwards, handed);
  if (!last_) return {};
  for (const auto& head : heads_) head->run(forwards);
  std::vector<Arrays> outputs;
  for (RequestForward& request : forwards) outputs.push_back(std::move(request.outputs));
  return outputs;
}

bool Model::reads_vocabulary(std::span<const Inputs> requests, const OutputSelection& wanted,
                             comm::Communicator& comm) const {
  for (const Inputs& inputs : requests) {
    const RequestForward request{.inputs = inputs, .wanted = wanted, .comm = comm};
    if (std::any_of(policy_.heads.begin(), policy_.heads.end(), [&](const policy::Head& head) {
          return (head.as<policy::LogitsSpec>() || head.as<policy::ClustersSpec>()) &&
                 needs_head(policy_, head, request);
        }))
      return true;
  }
  return false;
}

}  // namespace pm::models
