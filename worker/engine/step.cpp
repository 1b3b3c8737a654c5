// See step.h: fixed-width little-endian fields in declaration order, vectors with a count before them.
#include "worker/engine/step.h"

#include <cstring>
#include <stdexcept>
#include <type_traits>

namespace pm::engine {

namespace {

/// Elements of an array of a message; far more than any request may bring are refused.
size_t elements_of(const std::vector<int64_t>& shape) {
  constexpr int64_t most = int64_t{1} << 30;
  int64_t elements = 1;
  for (const int64_t size : shape) {
    if (size < 0 || size > most || (size > 0 && elements > most / size)) throw std::invalid_argument("step message: an array of impossible shape");
    elements *= size;
  }
  return static_cast<size_t>(elements);
}

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
  void operator()(const std::string& text) {
    (*this)(static_cast<uint32_t>(text.size()));
    out.insert(out.end(), text.begin(), text.end());
  }
  void operator()(const std::vector<std::string>& texts) {
    (*this)(static_cast<uint32_t>(texts.size()));
    for (const std::string& text : texts) (*this)(text);
  }
  void operator()(const std::vector<int64_t>& values) {
    (*this)(static_cast<uint32_t>(values.size()));
    for (const int64_t value : values) (*this)(value);
  }
  void operator()(const Arrays& arrays) {
    (*this)(static_cast<uint32_t>(arrays.size()));
    for (const auto& [name, array] : arrays) {
      (*this)(name), (*this)(array.shape);
      (*this)(std::holds_alternative<std::vector<float>>(array.values));
    }
  }
  void operator()(const std::vector<Arrays>& all) {
    (*this)(static_cast<uint32_t>(all.size()));
    for (const Arrays& arrays : all) (*this)(arrays);
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
  void operator()(std::string& text) {
    text.resize(count(1));
    take(text.data(), text.size());
  }
  void operator()(std::vector<std::string>& texts) {
    texts.resize(count(sizeof(uint32_t)));
    for (std::string& text : texts) (*this)(text);
  }
  void operator()(std::vector<int64_t>& values) {
    values.resize(count(sizeof(int64_t)));
    for (int64_t& value : values) (*this)(value);
  }
  void operator()(Arrays& arrays) {
    for (uint32_t left = count(2 * sizeof(uint32_t)); left > 0; --left) {
      std::string name;
      Array array;
      bool fractional = false;
      (*this)(name), (*this)(array.shape), (*this)(fractional);
      const auto elements = elements_of(array.shape);
      if (fractional) array.values = std::vector<float>(elements);
      else array.values = std::vector<int64_t>(elements);
      arrays.emplace(std::move(name), std::move(array));
    }
  }
  void operator()(std::vector<Arrays>& all) {
    all.resize(count(sizeof(uint32_t)));
    for (Arrays& arrays : all) (*this)(arrays);
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
