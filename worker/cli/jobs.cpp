// See jobs.h.
#include "worker/cli/jobs.h"

#include <ATen/ATen.h>

#include <condition_variable>
#include <mutex>

#include "worker/base/error.h"
#include "worker/engine/scheduler.h"

namespace pm::cli {

namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::Request, "InvalidRequest", message); }

/// A [batch, length] int64 input; `fallback` when it is absent.
at::Tensor input(const Tensors& inputs, const std::string& name, const at::Tensor& fallback) {
  const auto found = inputs.find(name);
  if (found == inputs.end()) return fallback;
  const at::Tensor tensor = found->second.to(at::kLong).contiguous();
  if (fallback.defined() && tensor.sizes() != fallback.sizes()) {
    refuse(name + " has the shape " + c10::str(tensor.sizes()) + ", expected that of input_ids, " + c10::str(fallback.sizes()));
  }
  return tensor;
}

at::Tensor input_ids(const Tensors& inputs) {
  const at::Tensor ids = input(inputs, "input_ids", {});
  if (!ids.defined()) refuse("the inputs have no tensor \"input_ids\"");
  if (ids.dim() != 2 || ids.numel() == 0) refuse("input_ids has the shape " + c10::str(ids.sizes()) + ", expected [batch, length]");
  return ids;
}

/// The unpadded rows of a forward pass and where each token belongs.
struct Rows {
  engine::StepMessage message;
  std::vector<at::Tensor> columns;     ///< per row: columns with mask 1
  at::Tensor places;                   ///< of each token in [batch x length]
};

Rows rows_of(const Tensors& inputs, const policy::Stack& stack) {
  const at::Tensor ids = input_ids(inputs);
  const int64_t batch = ids.size(0), length = ids.size(1);
  const at::Tensor mask = input(inputs, "attention_mask", at::ones_like(ids));
  const at::Tensor positions = input(inputs, "position_ids", at::arange(length, at::kLong).expand({batch, length}).contiguous());
  if (ids.min().item<int64_t>() < 0 || ids.max().item<int64_t>() >= stack.vocab) {
    refuse("input_ids has ids outside 0.." + std::to_string(stack.vocab - 1));
  }
  if (positions.min().item<int64_t>() < 0 || positions.max().item<int64_t>() >= stack.positions) {
    refuse("positions go up to " + std::to_string(positions.max().item<int64_t>()) + ", the model has " + std::to_string(stack.positions));
  }
  Rows rows;
  std::vector<at::Tensor> places;
  int32_t next_block = 0;
  for (int64_t row = 0; row < batch; ++row) {
    const at::Tensor columns = mask[row].nonzero().squeeze(1);
    if (columns.numel() == 0) refuse("row " + std::to_string(row) + " of attention_mask is all zero");
    const auto list = [&](const at::Tensor& source) {
      const at::Tensor taken = at::index_select(source[row], 0, columns).to(at::kInt);
      return std::vector<int32_t>(taken.const_data_ptr<int32_t>(), taken.const_data_ptr<int32_t>() + taken.numel());
    };
    engine::StepEntry entry;
    entry.slot = static_cast<int32_t>(row);
    entry.tokens = list(ids);
    entry.positions = list(positions);
    for (int64_t i = engine::blocks_for(columns.numel()); i > 0; --i) entry.blocks.push_back(next_block++);
    rows.message.entries.push_back(std::move(entry));
    places.push_back(columns + row * length);
    rows.columns.push_back(columns);
  }
  rows.places = at::cat(places);
  return rows;
}

/// [tokens, width] -> [batch, length, width], zero where no token is.
at::Tensor padded(const at::Tensor& values, const Rows& rows, int64_t batch, int64_t length) {
  at::Tensor out = at::zeros({batch * length, values.size(1)}, values.options());
  out.index_copy_(0, rows.places, values);
  return out.reshape({batch, length, values.size(1)});
}

}  // namespace

int64_t forward_blocks(const Tensors& inputs) {
  const at::Tensor ids = input_ids(inputs);
  return ids.size(0) * engine::blocks_for(ids.size(1));
}

Tensors run_forward(engine::Group& group, const policy::Model& model, const Tensors& inputs, bool hidden_states, bool attentions) {
  const at::Tensor ids = input_ids(inputs);
  const int64_t batch = ids.size(0), length = ids.size(1);
  Rows rows = rows_of(inputs, model.stacks[0]);
  rows.message.hidden_states = hidden_states || !group.leader().executor().has_logits();
  rows.message.attentions = attentions;
  rows.message.all_logits = group.leader().executor().has_logits();
  const engine::StepResult result = group.run(rows.message);
  engine::StepMessage free;   // the slots' tables go before anything else runs
  for (int64_t row = 0; row < batch; ++row) free.freed.push_back(static_cast<int32_t>(row));
  group.run(free);

  Tensors out;
  if (result.logits.defined()) out["logits"] = padded(result.logits, rows, batch, length);
  else out["last_hidden_state"] = padded(result.hidden, rows, batch, length);
  for (size_t i = 0; hidden_states && i < result.capture.hidden.size(); ++i) {
    out["hidden_states." + std::to_string(i)] = padded(result.capture.hidden[i], rows, batch, length);
  }
  for (size_t layer = 0; layer < result.capture.attention.size(); ++layer) {
    const auto& of_rows = result.capture.attention[layer];
    at::Tensor whole = at::zeros({batch, of_rows[0].size(0), length, length}, at::kFloat);
    for (int64_t row = 0; row < batch; ++row) {
      const at::Tensor& columns = rows.columns[static_cast<size_t>(row)];
      whole[row].index_put_({at::indexing::Slice(), columns.unsqueeze(1), columns.unsqueeze(0)}, of_rows[static_cast<size_t>(row)]);
    }
    out["attentions." + std::to_string(layer)] = whole;
  }
  return out;
}

namespace {

int64_t new_tokens(const std::vector<int32_t>& prompt, const Generation& generation) {
  if (generation.max_length <= 0) return generation.max_new_tokens;
  const int64_t left = generation.max_length - static_cast<int64_t>(prompt.size());
  if (left < 1) refuse("the prompt has " + std::to_string(prompt.size()) + " tokens, max_length is " + std::to_string(generation.max_length));
  return left;
}

}  // namespace

int64_t generation_blocks(const std::vector<std::vector<int32_t>>& prompts, const Generation& generation) {
  int64_t blocks = 0;
  for (const auto& prompt : prompts) blocks += engine::blocks_for(static_cast<int64_t>(prompt.size()) + new_tokens(prompt, generation));
  return blocks;
}

std::vector<std::vector<int32_t>> run_generation(engine::Group& group, const policy::Model& model, int64_t kv_blocks,
                                                 const std::vector<std::vector<int32_t>>& prompts, const Generation& generation) {
  if (!group.leader().executor().has_logits()) refuse(model.architecture + " has no language-model head, so that it cannot generate");
  std::mutex mutex;
  std::condition_variable done;
  size_t open = prompts.size();
  std::string failure;
  std::vector<std::vector<int32_t>> rows = prompts;
  engine::Limits limits{model.stacks[0].vocab, model.stacks[0].positions, kv_blocks, static_cast<int64_t>(prompts.size()), static_cast<int64_t>(prompts.size())};
  engine::Scheduler scheduler(group.leader(), group.channels(), limits);
  for (size_t row = 0; row < prompts.size(); ++row) {
    engine::Request request{std::to_string(row), prompts[row], new_tokens(prompts[row], generation), generation.sampling, model.eos, generation.ignore_eos};
    scheduler.submit(std::move(request), [&, row](const engine::Event& event) {
      std::lock_guard lock(mutex);
      if (event.token >= 0) rows[row].push_back(event.token);
      if (event.finish == engine::Finish::Failed) failure = event.reason;
      if (event.finish != engine::Finish::None && --open == 0) done.notify_all();
    });
  }
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return open == 0; });
  if (!failure.empty()) throw Error(ErrorKind::RankLost, "RankLost", failure);
  return rows;
}

}  // namespace pm::cli
