// SPDX-License-Identifier: Apache-2.0
// An unpickler: a stack machine over values that refer to each other by index, so that nothing is owned twice and
// nothing recurses. Opcodes: CPython's Lib/pickletools.py, protocols 2 to 5. Names: torch/_utils.py and
// torch/serialization.py.
#include "worker/checkpoint/pickle.h"

#include <array>
#include <set>
#include <unordered_map>

#include "worker/base/error.h"
#include "worker/checkpoint/random_access_file.h"

namespace pm::checkpoint {

namespace {

constexpr size_t max_values = 2'000'000, max_tensors = 200'000, max_dimensions = 16;

struct StorageType {
  std::string_view name, type;
  int64_t bytes;
};
constexpr std::array<StorageType, 12> storage_types{{{"FloatStorage", "F32", 4},
                                                     {"HalfStorage", "F16", 2},
                                                     {"BFloat16Storage", "BF16", 2},
                                                     {"DoubleStorage", "F64", 8},
                                                     {"CharStorage", "I8", 1},
                                                     {"ByteStorage", "U8", 1},
                                                     {"BoolStorage", "BOOL", 1},
                                                     {"ShortStorage", "I16", 2},
                                                     {"IntStorage", "I32", 4},
                                                     {"LongStorage", "I64", 8},
                                                     {"ComplexFloatStorage", "C64", 8},
                                                     {"ComplexDoubleStorage", "C128", 16}}};

enum class Kind : uint8_t {
  Mark,
  None,
  Bool,
  Int,
  Float,
  String,
  Tuple,
  List,
  Dict,
  OrderedDict,
  RebuildTensor,
  RebuildParameter,
  StorageType,
  Storage,
  Tensor
};

constexpr std::string_view name_of(Kind kind) {
  constexpr std::array<std::string_view, 15> names = {
      "a mark",       "None",    "a truth value", "a number",   "a number",       "a string",  "a tuple", "a list",
      "a dictionary", "a class", "a function",    "a function", "a storage type", "a storage", "a tensor"};
  return names[static_cast<size_t>(kind)];
}

using Ref = uint32_t;

struct Value {
  Kind kind = Kind::None;
  int64_t number = 0;      ///< Int, Bool; StorageType and Storage: index of storage_types; Tensor: index of tensors
  std::string text;        ///< String; Storage: its key
  std::vector<Ref> items;  ///< Tuple, List; Dict: key, value, key, value; Storage: the number of its elements
};

class Unpickler {
 public:
  Unpickler(std::string_view pickle, const std::string& file) : pickle_(pickle), file_(file) {
    for (Kind kind : {Kind::None, Kind::Bool, Kind::Bool}) values_.push_back({.kind = kind});
    values_[true_].number = 1;
  }

  std::vector<PickledTensor> run() {
    while (step(byte())) {
    }
    if (stack_.size() != 1) fail("leaves " + std::to_string(stack_.size()) + " values, expected one dictionary");
    if (at_ != pickle_.size()) fail("continues after its end");
    return named(values_[stack_[0]]);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(Reason::ModelUnreadable,
                file_ + ": the pickle " + printable(what) + " (byte " + std::to_string(at_) + ")");
  }

  // Input.
  std::string_view take(uint64_t bytes) {
    if (bytes > pickle_.size() - at_) fail("is cut off");
    at_ += bytes;
    return pickle_.substr(at_ - bytes, bytes);
  }
  unsigned char byte() { return static_cast<unsigned char>(take(1)[0]); }
  uint64_t number(size_t width) {
    const std::string_view bytes = take(width);
    uint64_t value = 0;
    for (size_t i = width; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
  }
  std::string_view line() {
    const size_t end = pickle_.find('\n', at_);
    if (end == std::string_view::npos || end - at_ > 256) fail("has a name without an end");
    const std::string_view text = take(end - at_);
    take(1);
    return text;
  }
  int64_t long_number(size_t width) {
    if (width > 8) fail("has a number of " + std::to_string(width) + " bytes, more than any size needs");
    uint64_t value = number(width);
    if (width > 0 && width < 8 && value >> (8 * width - 1)) value |= ~uint64_t{0} << (8 * width);
    return static_cast<int64_t>(value);
  }

  // Stack.
  void push(Ref ref) { stack_.push_back(ref); }
  void push(Value value) {
    if (values_.size() >= max_values) fail("has more than " + std::to_string(max_values) + " values");
    values_.push_back(std::move(value));
    push(static_cast<Ref>(values_.size() - 1));
  }
  void push_text(std::string_view text) { push(Value{.kind = Kind::String, .text = std::string(text)}); }
  Ref pop() {
    if (stack_.empty() || values_[stack_.back()].kind == Kind::Mark) fail("reads a value from an empty stack");
    const Ref top = stack_.back();
    stack_.pop_back();
    return top;
  }
  Value& top() {
    if (stack_.empty()) fail("reads a value from an empty stack");
    return values_[stack_.back()];
  }
  std::vector<Ref> pop_to_mark() {
    size_t begin = stack_.size();
    while (begin > 0 && values_[stack_[begin - 1]].kind != Kind::Mark) --begin;
    if (begin == 0) fail("has no mark on the stack");
    std::vector<Ref> items(stack_.begin() + static_cast<ptrdiff_t>(begin), stack_.end());
    stack_.resize(begin - 1);
    return items;
  }
  void push_tuple(size_t size) {
    std::vector<Ref> items(size);
    for (size_t i = size; i-- > 0;) items[i] = pop();
    push(Value{.kind = Kind::Tuple, .items = std::move(items)});
  }
  void memoize(uint64_t index) {
    if (stack_.empty() || values_[stack_.back()].kind == Kind::Mark) fail("memoizes a value of an empty stack");
    memo_[index] = stack_.back();
  }
  void recall(uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) fail("reads memo entry " + std::to_string(index) + ", which was never written");
    push(found->second);
  }
  void extend(Kind kind, const std::vector<Ref>& items) {
    Value& target = top();
    if (target.kind != kind || (kind == Kind::Dict && items.size() % 2))
      fail("adds values of a wrong kind or number to " + std::string(name_of(target.kind)));
    target.items.insert(target.items.end(), items.begin(), items.end());
  }

  bool step(unsigned char code) {
    switch (code) {
      case 0x80:
        if (uint64_t protocol = byte(); protocol < 2 || protocol > 5)
          fail("is of protocol " + std::to_string(protocol) + ", expected 2 to 5");
        break;
      case 0x95:
        number(8);
        break;  // FRAME is only a hint
      case '.':
        return false;
      case '(':
        push(Value{.kind = Kind::Mark});
        break;
      case 'N':
        push(none_);
        break;
      case 0x88:
        push(true_);
        break;
      case 0x89:
        push(false_);
        break;
      case 'J':
        push(Value{.kind = Kind::Int, .number = static_cast<int32_t>(number(4))});
        break;
      case 'K':
        push(Value{.kind = Kind::Int, .number = static_cast<int64_t>(number(1))});
        break;
      case 'M':
        push(Value{.kind = Kind::Int, .number = static_cast<int64_t>(number(2))});
        break;
      case 0x8a: {
        const size_t width = byte();
        push(Value{.kind = Kind::Int, .number = long_number(width)});
        break;
      }
      case 'G':
        take(8);
        push(Value{.kind = Kind::Float});
        break;
      case 'X':
        push_text(take(number(4)));
        break;
      case 'U':
      case 0x8c:
        push_text(take(number(1)));
        break;
      case 0x8d:
        push_text(take(number(8)));
        break;
      case ')':
        push(Value{.kind = Kind::Tuple});
        break;
      case 0x85:
      case 0x86:
      case 0x87:
        push_tuple(code - 0x84u);
        break;
      case 't': {
        auto items = pop_to_mark();
        push(Value{.kind = Kind::Tuple, .items = std::move(items)});
        break;
      }
      case ']':
        push(Value{.kind = Kind::List});
        break;
      case 'a': {
        const Ref item = pop();
        extend(Kind::List, {item});
        break;
      }
      case 'e': {
        const auto items = pop_to_mark();
        extend(Kind::List, items);
        break;
      }
      case '}':
        push(Value{.kind = Kind::Dict});
        break;
      case 's': {
        const Ref value = pop(), key = pop();
        extend(Kind::Dict, {key, value});
        break;
      }
      case 'u': {
        const auto items = pop_to_mark();
        extend(Kind::Dict, items);
        break;
      }
      case 'q':
        memoize(number(1));
        break;
      case 'r':
        memoize(number(4));
        break;
      case 0x94:
        memoize(memo_.size());
        break;
      case 'h':
        recall(number(1));
        break;
      case 'j':
        recall(number(4));
        break;
      case 'c': {
        const std::string_view module = line();
        push_global(module, line());
        break;
      }
      case 0x93: {
        const std::string name = text_of(pop()), module = text_of(pop());
        push_global(module, name);
        break;
      }
      case 'Q':
        push_storage(values_[pop()]);
        break;
      case 'R': {
        const Ref arguments = pop(), callee = pop();
        call(values_[callee].kind, arguments);
        break;
      }
      case 'b':
        build();
        break;
      default:
        fail("has the operation " + std::to_string(code) + ", which torch.save does not use for tensors");
    }
    return true;
  }

  const std::string& text_of(Ref ref) const {
    if (values_[ref].kind != Kind::String)
      fail("has " + std::string(name_of(values_[ref].kind)) + " where a string is expected");
    return values_[ref].text;
  }
  int64_t size_of(Ref ref, const char* what) const {
    const Value& value = values_[ref];
    if (value.kind != Kind::Int || value.number < 0)
      fail("has " + std::string(value.kind == Kind::Int ? "a number below 0" : name_of(value.kind)) + " as " + what +
           ", expected a number from 0");
    return value.number;
  }

  void push_global(std::string_view module, std::string_view name) {
    if (module == "collections" && name == "OrderedDict") return push(Value{.kind = Kind::OrderedDict});
    if (module == "torch._utils" && name == "_rebuild_tensor_v2") return push(Value{.kind = Kind::RebuildTensor});
    if (module == "torch._utils" && name == "_rebuild_parameter") return push(Value{.kind = Kind::RebuildParameter});
    if (module == "torch")
      for (size_t i = 0; i < storage_types.size(); ++i)
        if (storage_types[i].name == name)
          return push(Value{.kind = Kind::StorageType, .number = static_cast<int64_t>(i)});
    const std::string full = std::string(module.substr(0, 128)) + "." + std::string(name.substr(0, 128));
    fail("references " + full +
         ", which is not loaded: only plain tensors are (OrderedDict, _rebuild_tensor_v2, _rebuild_parameter and the "
         "storages of torch); " +
         how_to_convert());
  }

  /// Resolves a persistent id: ("storage", type, key, location, elements).
  void push_storage(const Value& id) {
    if (id.kind != Kind::Tuple || id.items.size() != 5 || text_of(id.items[0]) != "storage" ||
        values_[id.items[1]].kind != Kind::StorageType) {
      fail("has a persistent id that is not (\"storage\", type, key, location, elements)");
    }
    text_of(id.items[3]);
    size_of(id.items[4], "the number of a storage's elements");
    push(Value{.kind = Kind::Storage,
               .number = values_[id.items[1]].number,
               .text = text_of(id.items[2]),
               .items = {id.items[4]}});
  }

  void call(Kind callee, Ref arguments) {
    const Value& given = values_[arguments];
    if (given.kind != Kind::Tuple) fail("calls something without a tuple of arguments");
    if (callee == Kind::OrderedDict) return push_dictionary(given.items);
    if (callee == Kind::RebuildTensor) return push_tensor(given.items);
    if (callee == Kind::RebuildParameter) {
      if (given.items.size() != 3 || values_[given.items[0]].kind != Kind::Tensor)
        fail("rebuilds a parameter from something that is not a tensor");
      return push(given.items[0]);
    }
    fail("calls " + std::string(name_of(callee)));
  }

  /// Calls OrderedDict() or OrderedDict([[key, value], ...]).
  void push_dictionary(const std::vector<Ref>& arguments) {
    std::vector<Ref> items;
    if (arguments.size() > 1 || (!arguments.empty() && values_[arguments[0]].kind != Kind::List))
      fail("makes a dictionary of something that is not a list of pairs");
    if (!arguments.empty())
      for (Ref pair : values_[arguments[0]].items) {
        const Value& two = values_[pair];
        if ((two.kind != Kind::List && two.kind != Kind::Tuple) || two.items.size() != 2)
          fail("makes a dictionary of something that is not a list of pairs");
        items.insert(items.end(), two.items.begin(), two.items.end());
      }
    push(Value{.kind = Kind::Dict, .items = std::move(items)});
  }

  std::vector<int64_t> sizes_of(Ref ref, const char* what) const {
    const Value& tuple = values_[ref];
    if (tuple.kind != Kind::Tuple || tuple.items.size() > max_dimensions)
      fail("has " + std::string(what) + " that is not a tuple of at most " + std::to_string(max_dimensions) +
           " numbers");
    std::vector<int64_t> sizes;
    for (Ref item : tuple.items) sizes.push_back(size_of(item, what));
    return sizes;
  }

  /// Calls _rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks[, metadata]).
  void push_tensor(const std::vector<Ref>& given) {
    if ((given.size() != 6 && given.size() != 7) || values_[given[0]].kind != Kind::Storage)
      fail("rebuilds a tensor from something that is not a storage");
    if (values_[given[5]].kind != Kind::Dict || !values_[given[5]].items.empty())
      fail("has a tensor with hooks, which are code and not loaded");
    // The metadata holds the conjugate and negative bits, which change the values.
    if (given.size() == 7 && values_[given[6]].kind != Kind::None &&
        !(values_[given[6]].kind == Kind::Dict && values_[given[6]].items.empty())) {
      fail("has a tensor with metadata (a conjugate or negative view); " + how_to_convert());
    }
    const Value& storage = values_[given[0]];
    const StorageType& type = storage_types[static_cast<size_t>(storage.number)];
    PickledTensor tensor{.storage = storage.text,
                         .type = type.type,
                         .element_bytes = type.bytes,
                         .elements = values_[storage.items[0]].number,
                         .offset = size_of(given[1], "a tensor's offset"),
                         .shape = sizes_of(given[2], "a shape"),
                         .strides = sizes_of(given[3], "strides")};
    if (tensor.shape.size() != tensor.strides.size())
      fail("has a tensor with " + std::to_string(tensor.shape.size()) + " dimensions and " +
           std::to_string(tensor.strides.size()) + " strides");
    if (tensors_.size() >= max_tensors) fail("has more than " + std::to_string(max_tensors) + " tensors");
    tensors_.push_back(std::move(tensor));
    push(Value{.kind = Kind::Tensor, .number = static_cast<int64_t>(tensors_.size() - 1)});
  }

  /// BUILD sets attributes; a state_dict has only _metadata, the versions of modules, which tensors do not need.
  void build() {
    const Value& state = values_[pop()];
    if (top().kind != Kind::Dict || state.kind != Kind::Dict)
      fail("sets attributes of " + std::string(name_of(top().kind)));
    for (size_t i = 0; i < state.items.size(); i += 2)
      if (text_of(state.items[i]) != "_metadata")
        fail("sets the attribute \"" + text_of(state.items[i]).substr(0, 80) + "\" of a dictionary");
  }

  /// Returns the root's entries with their names.
  std::vector<PickledTensor> named(const Value& root) const {
    if (root.kind != Kind::Dict)
      fail("holds " + std::string(name_of(root.kind)) + ", expected a state_dict: a dictionary from names to tensors");
    if (root.items.size() / 2 > max_tensors) fail("has more than " + std::to_string(max_tensors) + " tensors");
    std::vector<PickledTensor> result;
    std::set<std::string_view> names;
    for (size_t i = 0; i < root.items.size(); i += 2) {
      const std::string& name = text_of(root.items[i]);
      for (unsigned char c : name)
        if (c < ' ') fail("has a tensor's name with a control character");
      if (!names.insert(name).second) fail("names \"" + name + "\" twice");
      const Value& value = values_[root.items[i + 1]];
      if (value.kind == Kind::Dict) {
        fail("has a dictionary under \"" + name +
             "\", so it is a training checkpoint and not a state_dict; save the inner one: "
             "torch.save(torch.load(file)[\"" +
             name + "\"], file)");
      }
      if (value.kind != Kind::Tensor)
        fail("has " + std::string(name_of(value.kind)) + " under \"" + name +
             "\", expected a tensor: save a state_dict and nothing else");
      result.push_back(tensors_[static_cast<size_t>(value.number)]);
      result.back().name = name;
    }
    return result;
  }

  static constexpr Ref none_ = 0, false_ = 1, true_ = 2;
  std::string_view pickle_;
  const std::string& file_;
  size_t at_ = 0;
  std::vector<Value> values_;
  std::vector<Ref> stack_;
  std::unordered_map<uint64_t, Ref> memo_;
  std::vector<PickledTensor> tensors_;
};

}  // namespace

std::vector<PickledTensor> read_state_dict(std::string_view pickle, const std::string& file) {
  return Unpickler(pickle, file).run();
}

}  // namespace pm::checkpoint
