// See model.h: one pass over the inputs of one or more requests, and their outputs under Hugging Face's names.
#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "worker/models/features.h"
#include "worker/models/model.h"

namespace pm::models {

namespace {

/// Names of a stack's own outputs: bare for a model of one stack; encoder_ and decoder_ around a cross-attention; else after the tower.
struct StackNames {
  std::string states = "last_hidden_state", pooled = "pooler_output", hidden = "hidden_states.", attentions = "attentions.", cross = "cross_attentions.";
};

StackNames names_of(const policy::Model& model, const policy::Stack& stack) {
  StackNames names;
  if (model.stacks.size() == 1) return names;
  if (model.topology == "encoder-decoder") {
    const bool decoder = stack.layers[0].cross.has_value();
    const std::string side = decoder ? "decoder_" : "encoder_";
    if (!decoder) names.states = side + names.states, names.pooled = side + names.pooled;
    names.hidden = side + names.hidden;
    names.attentions = side + names.attentions;
    return names;
  }
  for (std::string* name : {&names.states, &names.pooled, &names.hidden, &names.attentions}) *name = stack.name + "_model_output." + *name;
  return names;
}

/// The rows of several feeds below each other.
layers::Batch joined(const std::vector<const Feed*>& feeds) {
  if (feeds.size() == 1) return feeds[0]->batch;
  std::vector<at::Tensor> tokens, positions, pixels;
  std::map<std::string, std::vector<at::Tensor>> types;
  layers::Batch batch;
  int64_t rows = 0;
  for (const Feed* feed : feeds) {
    const layers::Batch& own = feed->batch;
    if (own.tokens.defined()) tokens.push_back(own.tokens);
    if (own.positions.defined()) positions.push_back(own.positions);
    if (own.pixels.defined()) pixels.push_back(own.pixels);
    for (const auto& [name, values] : own.types) types[name].push_back(values);
    append_features(batch.features, own.features, rows);
    for (ops::SequenceSpan sequence : own.sequences) {
      sequence.first += rows;
      sequence.key_row += rows;
      batch.sequences.push_back(sequence);
    }
    rows += feed->rows_of_batch();
  }
  if (!tokens.empty()) batch.tokens = at::cat(tokens);
  if (!positions.empty()) batch.positions = at::cat(positions);
  if (!pixels.empty()) batch.pixels = at::cat(pixels);
  for (auto& [name, values] : types) batch.types[name] = at::cat(values);
  return batch;
}

/// What a stack that attends to another sees of it: the sources of all requests lie below each other, as their rows do.
layers::Source source_of(const at::Tensor& states, const std::vector<const Feed*>& feeds, const std::vector<const Feed*>& seen) {
  layers::Source source;
  source.states = states;
  int64_t row = 0, seen_row = 0;
  for (size_t part = 0; part < feeds.size(); ++part) {
    const auto &sequences = feeds[part]->batch.sequences, &others = seen[part]->batch.sequences;
    for (size_t i = 0; i < sequences.size(); ++i) {
      source.sequences.push_back({.first = row + sequences[i].first, .tokens = sequences[i].tokens, .context = 0, .keys = others[i].tokens,
                                  .key_row = seen_row + others[i].first, .blocks = {}});
    }
    row += feeds[part]->rows_of_batch();
    seen_row += seen[part]->rows_of_batch();
  }
  return source;
}

}  // namespace

/// One request's part of a pass.
struct Model::Pass {
  const Model& model;
  const Inputs& inputs;
  const Wanted& wanted;
  comm::Communicator& comm;
  Arrays outputs;
  std::map<std::string, at::Tensor> states, pooled, vectors;   ///< of stacks, of their poolers, of heads with one vector per sequence

  bool wants(const std::string& name, bool usually) const {
    if (wanted.outputs.empty()) return usually;
    return std::find(wanted.outputs.begin(), wanted.outputs.end(), name) != wanted.outputs.end();
  }

  void put(const std::string& name, const at::Tensor& value) {
    if (comm.rank() == 0) outputs[name] = array_of(value);
  }

  /// One state per sequence [sequences, hidden] of a stack's `x`.
  at::Tensor select(const std::string& pool, const policy::Stack& stack, const at::Tensor& x) const {
    const Feed& feed = inputs.feeds.at(stack.name);
    std::vector<int64_t> rows;
    if (pool == "patches") {
      const int64_t extra = stack.input.extra_tokens();
      std::vector<at::Tensor> means;
      for (const ops::SequenceSpan& sequence : feed.batch.sequences) means.push_back(x.narrow(0, sequence.first + extra, sequence.tokens - extra).mean(0));
      return at::stack(means);
    }
    for (size_t i = 0; i < feed.batch.sequences.size(); ++i) {
      const ops::SequenceSpan& sequence = feed.batch.sequences[i];
      const bool end = pool == "eot" || pool == "last_eos" || pool == "last_but_one";
      rows.push_back(sequence.first + (end ? inputs.ends[i] : pool == "last" ? sequence.tokens - 1 : pool == "second" ? std::min<int64_t>(1, sequence.tokens - 1) : 0));
    }
    return at::index_select(x, 0, at::tensor(rows, at::kLong).to(x.device()));
  }

  /// The outputs of a stack whose states these are. What was captured is the whole pass's; this request's rows begin at `row`, its sequences
  /// at `sequence`.
  void take(const policy::Stack& stack, const at::Tensor& of_stack, const layers::Capture& capture, int64_t row, size_t sequence) {
    const Feed& feed = inputs.feeds.at(stack.name);
    const StackNames names = names_of(model.policy_, stack);
    states[stack.name] = of_stack;
    const std::string& task = model.policy_.task;
    const bool bare = task == "embed" || task == "similarity" || names.states == "encoder_last_hidden_state";
    if (wants(names.states, bare)) put(names.states, feed.padded(states[stack.name]));
    const bool projected = std::any_of(model.policy_.heads.begin(), model.policy_.heads.end(), [&](const policy::Head& head) { return head.stack == stack.name && compared(head.name); });
    if (stack.output.pooler && !projected && wants(names.pooled, bare)) put(names.pooled, pooled.at(stack.name));
    if (comm.rank() != 0) return;
    const auto own = [&](const std::vector<at::Tensor>& all) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(sequence);
      return std::vector<at::Tensor>(begin, begin + static_cast<std::ptrdiff_t>(feed.batch.sequences.size()));
    };
    for (size_t i = 0; i < capture.hidden.size(); ++i) put(names.hidden + std::to_string(i), feed.padded(capture.hidden[i].narrow(0, row, feed.rows_of_batch())));
    for (size_t i = 0; i < capture.attention.size(); ++i) put(names.attentions + std::to_string(i), feed.padded(own(capture.attention[i]), feed));
    if (capture.cross.empty()) return;
    const Feed& seen = inputs.feeds.at(stack.layers[0].cross->source);
    for (size_t i = 0; i < capture.cross.size(); ++i) put(names.cross + std::to_string(i), feed.padded(own(capture.cross[i]), seen));
  }

  /// Whether this request needs what `head` makes of states.
  bool reads(const policy::Head& head) const {
    if (!head.between.empty() || !head.mean.empty() || !inputs.feeds.contains(head.stack)) return false;
    return asks(head) || compared(head.name) || averaged(head.name);
  }

  bool asks(const policy::Head& head) const {
    return std::any_of(head.outputs.begin(), head.outputs.end(), [&](const std::string& name) { return wants(name, true); });
  }

  /// The states that `head` makes its scores of: every token's, or one per sequence.
  at::Tensor states_for(const policy::Head& head) const {
    const at::Tensor& of_stack = states.at(head.stack);
    return head.pool.empty() ? of_stack : head.pool == "pooler" ? pooled.at(head.stack) : select(head.pool, *model.policy_.stack(head.stack), of_stack);
  }

  /// Takes a head's scores of states_for() it; of a vocabulary they are on rank 0 only.
  void take(const policy::Head& head, const Head& runs, const at::Tensor& x, at::Tensor scores) {
    if (head.cells) scores = of_cells(head, runs, x, scores);
    if (!head.pool.empty()) vectors[head.name] = scores;
    if (comm.rank() != 0 || compared(head.name) || !asks(head)) return;
    if (head.pool.empty()) scores = inputs.feeds.at(head.stack).padded(scores);
    else if (inputs.choices > 0) scores = scores.reshape({-1, inputs.choices});
    if (head.vector) scores = scores.select(-1, 0);
    if (head.outputs.size() == 1) return put(head.outputs[0], scores);
    for (size_t i = 0; i < head.outputs.size(); ++i) put(head.outputs[i], scores.select(-1, static_cast<int64_t>(i)));
  }

  /// Whether a similarity head of this model compares the vectors of head `name`: they are normalised then.
  bool compared(const std::string& name) const {
    return std::any_of(model.policy_.heads.begin(), model.policy_.heads.end(), [&](const policy::Head& head) {
      return std::find(head.between.begin(), head.between.end(), name) != head.between.end();
    });
  }

  /// Outputs of a head that reads the padded states of a row.
  void of_padded(const policy::Head& head, const Head& runs) {
    if (comm.rank() != 0) return;
    const at::Tensor& of_stack = states.at(head.stack);
    const Feed& feed = inputs.feeds.at(head.stack);
    const auto given = [&](const std::string& name) {
      const auto found = inputs.of_heads.find(name);
      return found == inputs.of_heads.end() ? at::Tensor() : found->second;
    };
    const at::Tensor padded = feed.padded(of_stack);
    if (head.pairs) {
      const at::Tensor kept = feed.padded(at::ones({of_stack.size(0), 1}, of_stack.options())).squeeze(2);
      return put(head.outputs[0], runs.pairs(padded, given(head.pairs->chosen), kept, feed.tokens));
    }
    const FoundSpans found = runs.spans()(padded, given("p_mask"), given("cls_index"));
    const at::Tensor* values[] = {&found.start_probabilities, &found.starts, &found.end_probabilities, &found.ends, &found.answer};
    for (size_t i = 0; i < head.outputs.size(); ++i)
      if (wants(head.outputs[i], true)) put(head.outputs[i], *values[i]);
  }

  at::Tensor of_cells(const policy::Head& head, const Head& runs, const at::Tensor& states, const at::Tensor& scores) const {
    const layers::Batch& batch = inputs.feeds.at(head.stack).batch;
    const at::Tensor &column = batch.types.at("token_type_ids.1"), &row = batch.types.at("token_type_ids.2");
    std::vector<at::Tensor> all;
    for (const ops::SequenceSpan& sequence : batch.sequences) {
      const auto own = [&](const at::Tensor& values) { return values.narrow(0, sequence.first, sequence.tokens); };
      all.push_back(runs.cells(own(states), own(scores).select(1, 0), own(column), own(row)));
    }
    return at::cat(all).unsqueeze(1);
  }

  /// Whether a head of this model is the mean of head `name` and another.
  bool averaged(const std::string& name) const {
    return std::any_of(model.policy_.heads.begin(), model.policy_.heads.end(), [&](const policy::Head& head) {
      return std::find(head.mean.begin(), head.mean.end(), name) != head.mean.end();
    });
  }

  void average(const policy::Head& head) {
    if (comm.rank() == 0 && inputs.feeds.contains(head.stack) && wants(head.outputs[0], true)) put(head.outputs[0], (vectors.at(head.mean[0]) + vectors.at(head.mean[1])) / 2);
  }

  void compare(const policy::Head& head, const Head& runs) {
    std::vector<at::Tensor> sides;
    for (const std::string& name : head.between) {
      const auto found = vectors.find(name);
      if (found == vectors.end()) continue;
      sides.push_back(found->second / found->second.norm(2, -1, /*keepdim=*/true));
      const policy::Head& one = *std::find_if(model.policy_.heads.begin(), model.policy_.heads.end(), [&](const policy::Head& h) { return h.name == name; });
      const std::string pooled = names_of(model.policy_, *model.policy_.stack(one.stack)).pooled;   // Hugging Face's CLIPModel projects there
      if (wants(pooled, true)) put(pooled, found->second);
      if (wants(one.outputs[0], true)) put(one.outputs[0], sides.back());
    }
    if (sides.size() != 2) return;
    const at::Tensor text = at::mm(sides[0], sides[1].t()) * runs.temperature();
    if (wants("logits_per_text", true)) put("logits_per_text", text);
    if (wants("logits_per_image", true)) put("logits_per_image", text.t());
  }
};

namespace {

/// Names of what is handed from stage to stage, beside the states under the stack's own name.
std::string key_of(const char* what, const policy::Stack& stack) { return std::string(what) + "/" + stack.name; }
std::string key_of(const char* what, const policy::Stack& stack, int64_t layer) { return key_of(what, stack) + "/" + std::to_string(layer); }
std::string key_of(const char* what, const policy::Stack& stack, int64_t layer, size_t sequence) { return key_of(what, stack, layer) + "/" + std::to_string(sequence); }

/// Adds what a stage's layers from `first` on showed; ranks that were shown nothing add nothing.
void hand(Handover& handed, const policy::Stack& stack, int64_t first, const layers::Capture& capture) {
  for (size_t i = 0; i < capture.hidden.size(); ++i) handed[key_of("hidden", stack, first + static_cast<int64_t>(i))] = capture.hidden[i];
  const auto sequences = [&](const char* what, const std::vector<std::vector<at::Tensor>>& all) {
    for (size_t i = 0; i < all.size(); ++i) {
      for (size_t j = 0; j < all[i].size(); ++j) if (all[i][j].defined()) handed[key_of(what, stack, first + static_cast<int64_t>(i), j)] = all[i][j];
    }
  };
  sequences("attention", capture.attention);
  sequences("cross", capture.cross);
}

/// All that the stages showed of a stack with so many sequences.
layers::Capture captured(const Handover& handed, const policy::Stack& stack, size_t sequences) {
  layers::Capture capture;
  const auto find = [&](const std::string& key) {
    const auto found = handed.find(key);
    return found == handed.end() ? at::Tensor() : found->second;
  };
  for (int64_t i = 0; i <= static_cast<int64_t>(stack.layers.size()); ++i) {
    if (const at::Tensor hidden = find(key_of("hidden", stack, i)); hidden.defined()) capture.hidden.push_back(hidden);
    for (const auto& [what, all] : {std::pair{"attention", &capture.attention}, std::pair{"cross", &capture.cross}}) {
      if (!find(key_of(what, stack, i, 0)).defined()) continue;
      auto& layer = all->emplace_back();
      for (size_t j = 0; j < sequences; ++j) layer.push_back(find(key_of(what, stack, i, j)));
    }
  }
  return capture;
}

}  // namespace

void Model::run_stack(size_t number, std::vector<Pass>& passes, Handover& handed) const {
  const policy::Stack& stack = policy_.stacks[number];
  std::vector<Pass*> with;
  std::vector<const Feed*> feeds, seen;
  const auto& cross = stack.layers[0].cross;
  for (Pass& pass : passes) {
    const auto found = pass.inputs.feeds.find(stack.name);
    if (found == pass.inputs.feeds.end()) continue;
    with.push_back(&pass);
    feeds.push_back(&found->second);
    if (cross) seen.push_back(&pass.inputs.feeds.at(cross->source));
  }
  if (with.empty()) return;
  at::Tensor& states = handed[stack.name];
  if (const Stack* here = stacks_[number].get()) {
    const Wanted& wanted = with[0]->wanted;
    layers::Capture capture{wanted.hidden_states, wanted.attentions, {}, {}, {}};
    layers::Batch batch = joined(feeds);
    if (capture.hidden_states || capture.attentions) batch.capture = &capture;
    layers::Source source;
    if (cross) source = source_of(handed.at(cross->source), feeds, seen);
    states = (*here)(states, batch, nullptr, cross ? &source : nullptr, with[0]->comm);
    hand(handed, stack, here->range().begin, capture);
    if (here->ends() && stack.output.pooler) pool(stack, *here, with, feeds, handed);
  }
  if (!last_) return;
  size_t sequences = 0, sequence = 0;
  for (const Feed* feed : feeds) sequences += feed->batch.sequences.size();
  const layers::Capture capture = captured(handed, stack, sequences);
  int64_t row = 0;
  for (size_t i = 0; i < with.size(); ++i) {
    const size_t own = feeds[i]->batch.sequences.size();
    if (stack.output.pooler) with[i]->pooled[stack.name] = handed.at(key_of("pooled", stack)).narrow(0, static_cast<int64_t>(sequence), static_cast<int64_t>(own));
    with[i]->take(stack, states.narrow(0, row, feeds[i]->rows_of_batch()), capture, row, sequence);
    row += feeds[i]->rows_of_batch();
    sequence += own;
  }
}

/// The pooled vectors of all passes below each other, where the pooler is.
void Model::pool(const policy::Stack& stack, const Stack& here, const std::vector<Pass*>& passes, const std::vector<const Feed*>& feeds, Handover& handed) {
  std::vector<at::Tensor> chosen;
  int64_t row = 0;
  for (size_t i = 0; i < passes.size(); ++i) {
    const int64_t rows = feeds[i]->rows_of_batch();
    chosen.push_back(passes[i]->select(stack.output.pooler->pool, stack, handed.at(stack.name).narrow(0, row, rows)));
    row += rows;
  }
  handed[key_of("pooled", stack)] = here.pooled(at::cat(chosen));
}

std::vector<Arrays> Model::forward(std::span<const Inputs> requests, const Wanted& wanted, Handover& handed, comm::Communicator& comm) const {
  std::vector<Pass> passes;
  for (const Inputs& inputs : requests) passes.push_back(Pass{*this, inputs, wanted, comm, {}, {}, {}, {}});
  for (size_t i = 0; i < stacks_.size(); ++i) run_stack(i, passes, handed);
  if (!last_) return {};
  for (size_t i = 0; i < heads_.size(); ++i) run_head(policy_.heads[i], *heads_[i], passes);
  std::vector<Arrays> outputs;
  for (Pass& pass : passes) outputs.push_back(std::move(pass.outputs));
  return outputs;
}

/// Those of a vocabulary leave a device in pieces: together they would be far more than all else that a pass holds there, and they are handed out on the processor.
static at::Tensor scores_of(const Head& runs, const at::Tensor& states, comm::Communicator& comm) {
  constexpr int64_t most = int64_t{1} << 22;   // of a piece
  if (!runs.logits() || states.device().is_cpu()) return runs.scores(states, comm);
  const auto& columns = runs.logits()->columns();
  const int64_t rows = states.size(0), piece = std::max<int64_t>(1, most / std::accumulate(columns.begin(), columns.end(), int64_t{1}));
  std::vector<at::Tensor> pieces;
  for (int64_t row = 0; row < rows; row += piece) {
    const at::Tensor scores = runs.scores(states.narrow(0, row, std::min(piece, rows - row)), comm);
    if (scores.defined()) pieces.push_back(scores.cpu());
  }
  return pieces.empty() ? at::Tensor() : at::cat(pieces);
}

/// The states of all requests go through a head together, as its matrix comes by once.
void Model::run_head(const policy::Head& head, const Head& runs, std::vector<Pass>& passes) {
  std::vector<at::Tensor> all;
  std::vector<Pass*> with;
  for (Pass& pass : passes) {
    if (!head.between.empty()) pass.compare(head, runs);
    if (!head.mean.empty()) pass.average(head);
    if (!pass.reads(head)) continue;
    if (head.spans || head.pairs) {
      pass.of_padded(head, runs);
      continue;
    }
    with.push_back(&pass);
    all.push_back(pass.states_for(head));
  }
  if (with.empty()) return;
  const at::Tensor scores = scores_of(runs, all.size() == 1 ? all[0] : at::cat(all), with[0]->comm);
  int64_t row = 0;
  for (size_t i = 0; i < with.size(); ++i) {
    const int64_t rows = all[i].size(0);
    with[i]->take(head, runs, all[i], scores.defined() ? scores.narrow(0, row, rows) : scores);
    row += rows;
  }
}

bool Model::reads_vocabulary(std::span<const Inputs> requests, const Wanted& wanted, comm::Communicator& comm) const {
  for (const Inputs& inputs : requests) {
    const Pass pass{*this, inputs, wanted, comm, {}, {}, {}, {}};
    if (std::any_of(policy_.heads.begin(), policy_.heads.end(), [&](const policy::Head& head) { return head.logits && pass.reads(head); })) return true;
  }
  return false;
}

}  // namespace pm::models
