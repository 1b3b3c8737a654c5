// SPDX-License-Identifier: Apache-2.0
#include "worker/models/requests/request_forward.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "worker/models/requests/arrays.h"

namespace pm::models {

using policy::Pool;

namespace {

/// The names of LXMERT in transformers. The last states of a stream are those of the stack that joins it.
StackNames stream_names(const policy::Model& model, const policy::Stack& stack, size_t stream) {
  StackNames names;
  const bool joins = !stack.joins.empty();
  const std::string& own = joins ? stack.joins.at(stream) : stack.name;
  names.states = joins ? own + "_output" : "";
  names.pooled = joins ? "pooled_output" : "";
  names.hidden = own + "_hidden_states.";
  names.attentions = stack.name + "_attentions.";
  names.first_hidden = joins ? static_cast<int64_t>(model.stack(own)->layers.size()) - 1 : -1;
  return names;
}

}  // namespace

StackNames stack_names(const policy::Model& model, const policy::Stack& stack, size_t stream) {
  StackNames names;
  if (model.stacks.size() == 1 && stack.output.queries) names.states.clear();  // they are what heads score
  if (model.stacks.size() == 1 || stack.input.images) return names;
  if (!stack.joins.empty() || model.joining(stack.name)) return stream_names(model, stack, stream);
  if (model.retrieval && stack.input.prefix.empty() && !stack.layers[0].cross) {
    // Hugging Face's question_encoder_last_hidden_state is the pooled vector
    names.pooled = "question_encoder_last_hidden_state";
    names.states = "question_encoder_token_states";
    names.hidden = "question_enc_hidden_states.";
    names.attentions = "question_enc_attentions.";
    return names;
  }
  if (model.kind == policy::ModelKind::EncoderDecoder) {
    const bool decoder = stack.layers[0].cross.has_value();
    const std::string side = decoder ? "decoder_" : "encoder_";
    if (!decoder) names.states = side + names.states, names.pooled = side + names.pooled;
    names.hidden = side + names.hidden;
    names.attentions = side + names.attentions;
    names.global = side + names.global;
    names.stream_hidden = side + "ngram_hidden_states.";
    names.stream_attentions = side + names.stream_attentions;
    return names;
  }
  for (std::string* name : {&names.states, &names.pooled, &names.hidden, &names.attentions, &names.global})
    *name = stack.name + "_model_output." + *name;
  return names;
}

std::string StackNames::hidden_state(size_t i) const {
  const int64_t number = first_hidden + static_cast<int64_t>(i);
  return number < 0 ? "" : hidden + std::to_string(number);
}

bool RequestForward::wants(const std::string& name, bool by_default) const {
  if (wanted.outputs.empty()) return by_default;
  return std::find(wanted.outputs.begin(), wanted.outputs.end(), name) != wanted.outputs.end();
}

bool RequestForward::wants_any(const std::vector<std::string>& names) const {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return wants(name, true); });
}

void RequestForward::put(const std::string& name, const at::Tensor& value) {
  if (comm.rank() == 0) outputs[name] = array_of(value);
}

at::Tensor RequestForward::select(Pool pool, const policy::Stack& stack, const at::Tensor& x) const {
  const StackInput& stack_input = inputs.rows_of(stack.name);
  if (pool == Pool::Patches || pool == Pool::Mean) {
    const int64_t extra = pool == Pool::Patches ? stack.input.extra_tokens() : 0;
    std::vector<at::Tensor> means;
    for (const ops::SequenceSpan& sequence : stack_input.batch.sequences.spans)
      means.push_back(x.narrow(0, sequence.first + extra, sequence.tokens - extra).mean(0));
    return at::stack(means);
  }
  std::vector<int64_t> rows;
  for (size_t i = 0; i < stack_input.batch.sequences.spans.size(); ++i) {
    const ops::SequenceSpan& sequence = stack_input.batch.sequences.spans[i];
    const bool end = pool == Pool::Eot || pool == Pool::LastEos || pool == Pool::LastButOne || pool == Pool::ClsIndex;
    rows.push_back(sequence.first + (end                    ? inputs.ends[i]
                                     : pool == Pool::Last   ? sequence.tokens - 1
                                     : pool == Pool::Second ? std::min<int64_t>(1, sequence.tokens - 1)
                                                            : 0));
  }
  return at::index_select(x, 0, at::tensor(rows, at::kLong).to(x.device()));
}

}  // namespace pm::models
