// See step.h: fixed-width little-endian fields in declaration order, vectors with a count before them.
#include "worker/engine/step.h"

#include <cstring>
#include <stdexcept>
#include <type_traits>

namespace pm::engine {

namespace {

class Writer {
 public:
  template <typename T> void operator()(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    out.insert(out.end(), bytes, bytes + sizeof(T));
  }
  void operator()(const std::vector<int32_t>& values) {
    (*this)(static_cast<uint32_t>(values.size()));
    const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
    out.insert(out.end(), bytes, bytes + values.size() * sizeof(int32_t));
  }
  std::vector<uint8_t> out;
};

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> in) : in_(in) {}
  template <typename T> void operator()(T& value) { take(&value, sizeof(T)); }
  void operator()(bool& value) {
    uint8_t byte = 0;
    take(&byte, 1);
    value = byte != 0;
  }
  void operator()(std::vector<int32_t>& values) {
    values.resize(count(sizeof(int32_t)));
    take(values.data(), values.size() * sizeof(int32_t));
  }
  uint32_t count(size_t element) {
    uint32_t n = 0;
    (*this)(n);
    if (n > in_.size() / element) throw std::invalid_argument("step message: a count of " + std::to_string(n) + " exceeds the message");
    return n;
  }
  bool empty() const { return in_.empty(); }

 private:
  void take(void* to, size_t size) {
    if (size > in_.size()) throw std::invalid_argument("step message: cut short");
    if (size > 0) std::memcpy(to, in_.data(), size);
    in_ = in_.subspan(size);
  }
  std::span<const uint8_t> in_;
};

/// The fields of an entry in order; one list for both directions.
template <typename Visit, typename Entry>
void visit_entry(Visit& visit, Entry& e) {
  visit(e.slot), visit(e.sequence), visit(e.context), visit(e.tokens), visit(e.positions), visit(e.blocks), visit(e.sample);
  visit(e.sampling.do_sample), visit(e.sampling.temperature), visit(e.sampling.top_k), visit(e.sampling.top_p), visit(e.sampling.seed);
}

template <typename Visit, typename Message>
void visit_head(Visit& visit, Message& m) {
  visit(m.step), visit(m.stop), visit(m.hidden_states), visit(m.attentions), visit(m.all_logits), visit(m.freed);
}

}  // namespace

std::vector<uint8_t> encode(const StepMessage& message) {
  Writer write;
  visit_head(write, message);
  write(static_cast<uint32_t>(message.entries.size()));
  for (const StepEntry& entry : message.entries) visit_entry(write, entry);
  return std::move(write.out);
}

StepMessage decode(std::span<const uint8_t> bytes) {
  Reader read(bytes);
  StepMessage message;
  visit_head(read, message);
  message.entries.resize(read.count(sizeof(int32_t)));
  for (StepEntry& entry : message.entries) visit_entry(read, entry);
  if (!read.empty()) throw std::invalid_argument("step message: bytes after its end");
  return message;
}

}  // namespace pm::engine
