// See model.h: one pass over given inputs, and its outputs under Hugging Face's names.
#include <ATen/ATen.h>

#include <algorithm>

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

}  // namespace

/// The state of one pass.
struct Model::Pass {
  const Model& model;
  const Inputs& inputs;
  const Wanted& wanted;
  comm::Communicator& comm;
  Arrays outputs;
  std::map<std::string, at::Tensor> states, vectors;   ///< of stacks, of heads with one vector per sequence

  bool wants(const std::string& name, bool usually) const {
    if (wanted.outputs.empty()) return usually;
    return std::find(wanted.outputs.begin(), wanted.outputs.end(), name) != wanted.outputs.end();
  }

  void put(const std::string& name, const at::Tensor& value) {
    if (comm.rank() == 0) outputs[name] = array_of(value);
  }

  /// One state per sequence [sequences, hidden].
  at::Tensor select(const std::string& pool, const policy::Stack& stack) const {
    const Feed& feed = inputs.feeds.at(stack.name);
    const at::Tensor& x = states.at(stack.name);
    std::vector<int64_t> rows;
    if (pool == "patches") {
      std::vector<at::Tensor> means;
      for (const ops::SequenceSpan& sequence : feed.batch.sequences) means.push_back(x.narrow(0, sequence.first + 1, sequence.tokens - 1).mean(0));
      return at::stack(means);
    }
    for (size_t i = 0; i < feed.batch.sequences.size(); ++i) {
      const ops::SequenceSpan& sequence = feed.batch.sequences[i];
      const bool end = pool == "eot" || pool == "last_eos";
      rows.push_back(sequence.first + (end ? inputs.ends[i] : pool == "last" ? sequence.tokens - 1 : 0));
    }
    return at::index_select(x, 0, at::tensor(rows, at::kLong));
  }

  at::Tensor pooled(const policy::Stack& stack) const {
    return model.stack(stack.name).pooled(select(stack.output.pooler->pool, stack));
  }

  void run_stack(const policy::Stack& stack) {
    const auto found = inputs.feeds.find(stack.name);
    if (found == inputs.feeds.end()) return;
    const Feed& feed = found->second;
    const StackNames names = names_of(model.policy_, stack);
    layers::Capture capture{wanted.hidden_states, wanted.attentions, {}, {}, {}};
    layers::Batch batch = feed.batch;
    if (capture.hidden_states || capture.attentions) batch.capture = &capture;
    layers::Source source;
    const Feed* seen = nullptr;
    if (const auto& cross = stack.layers[0].cross) {
      seen = &inputs.feeds.at(cross->source);
      source.states = states.at(cross->source);
      for (size_t i = 0; i < batch.sequences.size(); ++i) {
        const ops::SequenceSpan &own = batch.sequences[i], &other = seen->batch.sequences[i];
        source.sequences.push_back({.first = own.first, .tokens = own.tokens, .context = 0, .keys = other.tokens, .key_row = other.first, .blocks = {}});
      }
    }
    states[stack.name] = model.stack(stack.name)(batch, nullptr, seen ? &source : nullptr, comm);
    const std::string& task = model.policy_.task;
    const bool bare = task == "embed" || task == "similarity" || names.states == "encoder_last_hidden_state";
    if (wants(names.states, bare)) put(names.states, feed.padded(states[stack.name]));
    const bool projected = std::any_of(model.policy_.heads.begin(), model.policy_.heads.end(), [&](const policy::Head& head) { return head.stack == stack.name && compared(head.name); });
    if (stack.output.pooler && !projected && wants(names.pooled, bare)) put(names.pooled, pooled(stack));
    if (comm.rank() != 0) return;
    for (size_t i = 0; i < capture.hidden.size(); ++i) put(names.hidden + std::to_string(i), feed.padded(capture.hidden[i]));
    for (size_t i = 0; i < capture.attention.size(); ++i) put(names.attentions + std::to_string(i), feed.padded(capture.attention[i], feed));
    for (size_t i = 0; i < capture.cross.size(); ++i) put(names.cross + std::to_string(i), feed.padded(capture.cross[i], *seen));
  }

  /// Scores of every token, or of one state per sequence.
  void run_head(const policy::Head& head, const Head& runs) {
    if (!head.between.empty()) return compare(head, runs);
    if (!inputs.feeds.contains(head.stack)) return;
    const auto is_wanted = [&](const std::string& name) { return wants(name, true); };
    if (std::none_of(head.outputs.begin(), head.outputs.end(), is_wanted) && !compared(head.name)) return;
    const policy::Stack& stack = *model.policy_.stack(head.stack);
    const at::Tensor x = head.pool.empty() ? states.at(head.stack) : head.pool == "pooler" ? pooled(stack) : select(head.pool, stack);
    at::Tensor scores = runs.scores(x, comm);
    if (!head.pool.empty()) vectors[head.name] = scores;
    if (comm.rank() != 0 || compared(head.name)) return;
    if (head.pool.empty()) scores = inputs.feeds.at(head.stack).padded(scores);
    else if (inputs.choices > 0) scores = scores.reshape({-1, inputs.choices});
    if (head.outputs.size() == 1) return put(head.outputs[0], scores);
    for (size_t i = 0; i < head.outputs.size(); ++i) put(head.outputs[i], scores.select(-1, static_cast<int64_t>(i)));
  }

  /// Whether a similarity head of this model compares the vectors of head `name`: they are normalised then.
  bool compared(const std::string& name) const {
    return std::any_of(model.policy_.heads.begin(), model.policy_.heads.end(), [&](const policy::Head& head) {
      return std::find(head.between.begin(), head.between.end(), name) != head.between.end();
    });
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

Arrays Model::forward(const Inputs& inputs, const Wanted& wanted, comm::Communicator& comm) const {
  Pass pass{*this, inputs, wanted, comm, {}, {}, {}};
  for (const policy::Stack& stack : policy_.stacks) pass.run_stack(stack);
  for (size_t i = 0; i < heads_.size(); ++i) pass.run_head(policy_.heads[i], *heads_[i]);
  return std::move(pass.outputs);
}

}  // namespace pm::models
