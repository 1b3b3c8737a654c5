// See step.h.
#include "worker/engine/step.h"

#include "worker/engine/wire.h"

namespace pm::engine {

namespace {

template <typename Visit, typename Drawing>
void visit_drawing(Visit& visit, Drawing& d) {
  visit(d.how.temperature), visit(d.how.top_p), visit(d.how.min_p), visit(d.how.top_k), visit(d.how.seed), visit(d.how.sequence), visit(d.how.position), visit(d.how.sample), visit(d.count);
  std::vector<int32_t> ids;
  std::vector<float> factors, less;
  for (const ops::ScoreEdit& edit : d.edits) ids.push_back(edit.id), factors.push_back(edit.factor), less.push_back(edit.less);
  visit(ids), visit(factors), visit(less);
  if constexpr (!std::is_const_v<Drawing>) {
    if (factors.size() != ids.size() || less.size() != ids.size()) throw std::invalid_argument("step message: edits of scores that are not whole");
    for (size_t i = 0; i < ids.size(); ++i) d.edits.push_back({ids[i], factors[i], less[i]});
  }
}

/// The fields of an entry in order; one list for both directions.
template <typename Visit, typename Entry>
void visit_entry(Visit& visit, Entry& e) {
  visit(e.slot), visit(e.anew), visit(e.context), visit(e.tokens), visit(e.blocks), visit(e.source), visit(e.source_blocks), visit(e.source_tokens), visit(e.want);
  if (e.want == Want::Drawn) visit_drawing(visit, e.drawing);
}

template <typename Visit, typename Message>
void visit_head(Visit& visit, Message& m) {
  visit(m.step), visit(m.stop), visit(m.freed), visit(m.copies), visit(m.bucket);
}

template <typename Visit, typename Job>
void visit_job(Visit& visit, Job& job) {
  visit(job.inputs), visit(job.hidden_states), visit(job.attentions), visit(job.outputs);
}

}  // namespace

std::vector<uint8_t> encode(const StepMessage& message) {
  Writer write;
  visit_head(write, message);
  write(static_cast<uint32_t>(message.entries.size()));
  for (const StepEntry& entry : message.entries) visit_entry(write, entry);
  write(message.forward.has_value());
  if (message.forward) visit_job(write, *message.forward);
  return std::move(write.out);
}

StepMessage decode(std::span<const uint8_t> bytes) {
  Reader read(bytes);
  StepMessage message;
  visit_head(read, message);
  message.entries.resize(read.count(sizeof(int32_t)));
  for (StepEntry& entry : message.entries) {
    visit_entry(read, entry);
    if (entry.want > Want::Scores) throw std::invalid_argument("step message: an entry wants what there is not");
  }
  bool forward = false;
  read(forward);
  if (forward) visit_job(read, message.forward.emplace());
  if (!read.empty()) throw std::invalid_argument("step message: bytes after its end");
  return message;
}

}  // namespace pm::engine
