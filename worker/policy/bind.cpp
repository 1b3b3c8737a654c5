// See binder.h: one row becomes one parameter.
#include <algorithm>

#include "worker/base/error.h"
#include "worker/policy/binder.h"

namespace pm::policy {

namespace {

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (int64_t size : shape) text += (text.size() > 1 ? ", " : "") + (size < 0 ? std::string("any") : std::to_string(size));
  return text + "]";
}

/// The shape that the tensor has to have in the file.
std::vector<int64_t> stored_shape(const Ask& ask) {
  std::vector<int64_t> shape = ask.shape;
  if (ask.fused != Fused::None && !shape.empty()) shape[0] = ask.stored_rows;
  if (ask.in_out && shape.size() == 2) std::swap(shape[0], shape[1]);
  return shape;
}

bool same(const std::vector<int64_t>& wanted, const std::vector<int64_t>& found) {
  if (wanted.empty()) return found.empty() || (found.size() == 1 && found[0] == 1);
  // leading dimensions of 1 that the parameter does not have: BART's [1, vocabulary], ViT's [1, 1, hidden]
  const size_t more = found.size() - std::min(found.size(), wanted.size());
  if (found.size() < wanted.size() || std::any_of(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(more), [](int64_t f) { return f != 1; })) return false;
  return std::equal(wanted.begin(), wanted.end(), found.begin() + static_cast<std::ptrdiff_t>(more), [](int64_t w, int64_t f) { return w < 0 || w == f; });
}

}  // namespace

/// Compares the tensor with what is asked and fills in the sizes that it decides.
bool Binder::check_shape(const checkpoint::TensorInfo& tensor, Ask& ask, const Node& at) {
  const std::vector<int64_t> wanted = stored_shape(ask);
  if (!same(wanted, tensor.shape)) {
    problems_.push_back("\"" + tensor.name + "\" has shape " + text_of(tensor.shape) + ", expected " + text_of(wanted) + " (" + at.where() + ")");
    return false;
  }
  const size_t more = tensor.shape.size() - std::min(tensor.shape.size(), ask.shape.size());
  for (size_t i = 0; i < ask.shape.size(); ++i) {
    if (ask.shape[i] < 0) ask.shape[i] = tensor.shape[more + (ask.in_out && ask.shape.size() == 2 ? 1 - i : i)];
  }
  if (ask.units < 0) ask.units = ask.shape.empty() ? 1 : ask.shape[0];
  return true;
}

void Binder::check_type(const checkpoint::TensorInfo& tensor, const Node& at) {
  if (tensor.dtype == DType::F32 || tensor.dtype == DType::F16 || tensor.dtype == DType::BF16 || tensor.dtype == DType::F64) return;
  problems_.push_back("\"" + tensor.name + "\" has the element type " + std::string(name_of(tensor.dtype)) + ", expected F32, F16, BF16 or F64 (" +
                      at.where() + ")");
}

void Binder::missing(const std::vector<std::string>& names, const Node& at) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "\"" : " or \"") + name + "\"";
  for (const std::string& name : names) {
    auto found = unserved_.find(name);
    if (found == unserved_.end()) continue;
    used_.insert(name);
    problems_.push_back("\"" + name + "\" has the element type " + found->second + ", which is not served (" + at.where() + ")");
    return;
  }
  missing_[at.where()].insert(all);
}

/// Other spellings of the same tensor have to hold the same bytes, unless the first wins.
void Binder::take_spellings(const std::vector<std::string>& names, const checkpoint::TensorInfo& taken, bool first_wins, const Node& at) {
  for (const std::string& name : names) {
    const checkpoint::TensorInfo* other = find(name);
    if (!other || other == &taken) continue;
    known_.insert(name);
    if (!first_wins && !checkpoint_.equal(taken, *other)) {
      problems_.push_back("\"" + taken.name + "\" and \"" + other->name + "\" should be one tensor and differ (" + at.where() + ")");
    }
  }
}

/// Gives `param` the storage of `tie` when it has no tensor of its own or one with the same bytes.
void Binder::share(Param& param, const std::string& tie, const std::string& own, const Node& at) {
  auto target = bound_.find(tie);
  if (target == bound_.end()) {
    if (!own.empty() || lost_.contains(tie)) return;
    refuse_policy(at, "tie: \"" + tie + "\" is not a parameter that is read before this one (\"" + param.path + "\")");
  }
  const Param& other = target->second;
  if (!own.empty() && (param.in_out != other.in_out || !checkpoint_.equal(*param.tensor, *other.tensor))) return;
  if (!own.empty() && param.tensor != other.tensor) {
    used_.erase(own);
    known_.insert(own);
  }
  param.tensor = other.tensor;
  param.dtype = other.dtype;
  param.keep = other.keep;
  param.shares = other.shares.empty() ? other.path : other.shares;
}

std::optional<Param> Binder::bind(Ask ask, const std::vector<std::string>& names, const Row& row, const Place& place) {
  if (rehearsal_) {
    for (const std::string& name : names) known_.insert(name);
    return std::nullopt;
  }
  const Node& at = row.names() ? *row.names() : *row.node;
  const Node *tie = row.option("tie"), *first = row.option("first");
  if (first && evaluate_bool(*first, place.scope)) ask.first_wins = true;
  Param param{.role = ask.role, .path = ask.path, .stack = place.stack, .layer = place.layer};
  const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& name) { return find(name) != nullptr; });
  const bool own = found != names.end();
  if (own) {
    param.tensor = find(*found);
    used_.insert(*found);
    take_spellings(names, *param.tensor, ask.first_wins, at);
    check_type(*param.tensor, at);
    if (!check_shape(*param.tensor, ask, at)) {
      lost_.insert(ask.path);
      return std::nullopt;
    }
    const bool raised = ask.f32_if_f16 && param.tensor->dtype == DType::F16;
    param.dtype = raised ? DType::F32 : param.tensor->dtype;
    param.keep = raised;
  } else if (!tie) {
    const Node* optional = row.option("optional");
    if (!optional || !evaluate_bool(*optional, place.scope)) missing(names, at);
    lost_.insert(ask.path);
    return std::nullopt;
  }
  param.in_out = ask.in_out;
  if (tie) share(param, tie->text, own ? *found : std::string(), *tie);
  if (!param.tensor) {   // what it is tied to is missing itself
    lost_.insert(ask.path);
    return std::nullopt;
  }
  if (!own && !check_shape(*param.tensor, ask, *tie)) return std::nullopt;
  param.shape = ask.shape;
  param.fused = ask.fused;
  param.part = ask.part;
  param.parts = ask.parts;
  param.blocks = ask.blocks;
  param.place = ask.place;
  param.units = ask.units;
  param.block = ask.block;
  param.group = ask.group;
  if (param.shares.empty()) {
    auto [first, fresh] = storage_.emplace(std::pair(param.tensor->name, param.part), param.path);
    if (!fresh) param.shares = first->second;
  }
  bound_[param.path] = param;
  return param;
}

}  // namespace pm::policy
