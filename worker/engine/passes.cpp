// See passes.h.
#include "worker/engine/passes.h"

#include <algorithm>

#include "worker/engine/rows.h"

namespace pm::engine {

void Passes::add(ForwardRequest request, std::function<void(ForwardResult)> on_done) {
  auto pass = std::make_shared<Pass>();
  pass->rows = rows_of(request.inputs);
  pass->request = std::move(request);
  pass->on_done = std::move(on_done);
  queue_.push_back(std::move(pass));
  ++open_;
}

/// Whether nothing else goes into the same message: what is captured is of all its rows; texts beside images have rows of their own.
bool Passes::alone(const ForwardRequest& request) const { return !split_ || request.hidden_states || request.attentions; }

int64_t Passes::rows_of_next(const Pass& pass) const {
  if (!split_) return pass.rows - pass.sent;
  const int64_t fit = rows_of_step(pass.request.inputs, pass.sent, step_tokens_), part = std::max<int64_t>(1, (pass.rows + parts_ - 1) / parts_);
  return std::min({fit, part, std::max<int64_t>(1, pass.rows - pass.sent)});
}

std::vector<PassPart> Passes::take(int64_t& tokens) {
  std::vector<PassPart> taken;
  int64_t room = step_tokens_;
  for (auto place = queue_.begin(); place != queue_.end();) {
    Pass& pass = **place;
    const ForwardRequest& request = pass.request;
    const int64_t left = pass.rows - pass.sent, cost = row_cost(request.inputs, step_tokens_);
    if (!taken.empty() && (alone(request) || request.outputs != taken.front().pass->request.outputs || left * cost > room || pass.sent > 0)) {
      ++place;
      continue;
    }
    const int64_t rows = rows_of_next(pass);
    const bool last = alone(request) || rows < left;
    room -= rows * cost;
    tokens += rows * cost;
    taken.push_back({*place, pass.sent, rows});
    pass.sent += rows;
    std::shared_ptr<Pass> rest = pass.sent < pass.rows ? *place : nullptr;
    place = queue_.erase(place);
    if (rest) {
      queue_.push_back(std::move(rest));   // behind the others: a large pass does not hold them up
      break;
    }
    if (last || room <= 0) break;
  }
  return taken;
}

ForwardJob Passes::job(const std::vector<PassPart>& parts) {
  const ForwardRequest& first = parts.front().pass->request;
  ForwardJob job{{}, first.hidden_states, first.attentions, first.outputs};
  for (const PassPart& part : parts) {
    Arrays& inputs = part.pass->request.inputs;
    job.inputs.push_back(part.rows == part.pass->rows ? std::move(inputs) : slice_rows(inputs, part.first, part.rows));
  }
  return job;
}

void Passes::end(Pass& pass, ForwardResult result, Ended& ended) {
  ended.push_back([on_done = std::exchange(pass.on_done, nullptr), result = std::make_shared<ForwardResult>(std::move(result))] { on_done(std::move(*result)); });
  --open_;
}

void Passes::finish(const std::vector<PassPart>& parts, std::vector<Arrays> outputs, Ended& ended) {
  for (size_t i = 0; i < parts.size(); ++i) {
    Pass& pass = *parts[i].pass;
    if (!pass.on_done) continue;   // it has ended while the ranks still ran
    if (pass.request.by_micro_batch) {
      for (auto& [name, array] : outputs.at(i)) pass.outputs["micro_batches." + std::to_string(pass.landed) + "." + name] = std::move(array);
    } else {
      append_rows(pass.outputs, std::move(outputs.at(i)));
    }
    ++pass.landed;
    pass.done += parts[i].rows;
    if (pass.done < pass.rows) continue;
    ++finished_;
    end(pass, {std::move(pass.outputs), Finish::Stop, {}}, ended);
  }
}

void Passes::cancel(const std::string& id) {
  for (const auto& pass : queue_) if (pass->request.id == id) pass->cancelled = true;
}

void Passes::cancel_all() {
  for (const auto& pass : queue_) pass->cancelled = true;
}

void Passes::drop_cancelled(Ended& ended) {
  for (const auto& pass : queue_) if (pass->cancelled) end(*pass, {{}, Finish::Cancelled, {}}, ended);
  std::erase_if(queue_, [](const auto& pass) { return pass->cancelled; });
}

void Passes::fail(Pass& pass, const std::string& reason, Ended& ended, bool too_large) {
  if (!pass.on_done) return;
  ++failed_;
  end(pass, {{}, Finish::Failed, reason, too_large}, ended);
}

void Passes::refuse(const std::vector<PassPart>& parts, const std::string& reason, Ended& ended) {
  for (const PassPart& part : parts) {
    fail(*part.pass, reason, ended, /*too_large=*/true);
    std::erase(queue_, part.pass);
  }
}

void Passes::fail_all(const std::string& reason, const std::vector<PassPart>& under_way, Ended& ended) {
  for (const PassPart& part : under_way) fail(*part.pass, reason, ended);
  for (const auto& pass : queue_) fail(*pass, reason, ended);
  queue_.clear();
}

}  // namespace pm::engine
