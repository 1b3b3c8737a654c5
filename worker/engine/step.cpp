// See step.h.
#include "worker/engine/step.h"

#include "worker/engine/wire.h"

namespace pm::engine {

namespace {

/// The fields of an entry in order; one list for both directions.
template <typename Visit, typename Entry>
void visit_entry(Visit& visit, Entry& e) {
  visit(e.slot), visit(e.anew), visit(e.context), visit(e.tokens), visit(e.blocks), visit(e.source), visit(e.source_blocks), visit(e.source_tokens), visit(e.want);
}

template <typename Visit, typename Message>
void visit_head(Visit& visit, Message& m) {
  visit(m.step), visit(m.stop), visit(m.freed), visit(m.copies);
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
