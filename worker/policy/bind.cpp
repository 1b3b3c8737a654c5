// SPDX-License-Identifier: Apache-2.0
// Binder: makes a parameter of one binding.
#include <algorithm>

#include "worker/base/error.h"
#include "worker/checkpoint/quantized/packed_matrix.h"
#include "worker/policy/binder.h"
#include "worker/policy/roles.h"
#include "worker/policy/tensor_slices.h"

namespace pm::policy {

namespace {

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (int64_t size : shape)
    text += (text.size() > 1 ? ", " : "") + (size < 0 ? std::string("any") : std::to_string(size));
  return text + "]";
}

/// Returns the shape that one member must have in the file.
std::vector<int64_t> member_shape(const ParamRequest& request) {
  std::vector<int64_t> shape = request.shape;
  if (request.fused != Fused::None && !shape.empty()) shape[0] = request.stored_rows;
  if (request.conv1d && request.diagonal_blocks > 1) {  // of each block [inputs, outputs]
    const bool by_inputs = sharding_rule(request.role).dim == 1;
    return {request.diagonal_blocks, shape[1] / (by_inputs ? request.diagonal_blocks : 1),
            shape[0] / (by_inputs ? 1 : request.diagonal_blocks)};
  }
  if (request.conv1d && shape.size() == 2) std::swap(shape[0], shape[1]);
  if (request.diagonal_blocks > 1 && sharding_rule(request.role).dim == 1) {
    shape[0] *= request.diagonal_blocks;
    shape[1] /= request.diagonal_blocks;
  }
  return shape;
}

/// Returns the shape that the tensor must have in the file.
std::vector<int64_t> stored_shape(const ParamRequest& request, int64_t members) {
  std::vector<int64_t> shape = member_shape(request);
  if (members > 1) shape.insert(shape.begin(), members);
  return shape;
}

/// Returns whether a tensor has the wanted shape, in which -1 is any size; its last axes may be heads of `head_dim`.
bool same(const std::vector<int64_t>& wanted, const std::vector<int64_t>& found, int64_t head_dim) {
  if (wanted.empty()) return found.empty() || (found.size() == 1 && found[0] == 1);
  std::vector<int64_t> shape = without_ones(found, wanted.size());
  if (head_dim > 0 && shape.size() == wanted.size() + 1 && shape.back() == head_dim)
    shape = with_last_axes_merged(std::move(shape), wanted.size());
  return std::equal(wanted.begin(), wanted.end(), shape.begin(), shape.end(),
                    [](int64_t w, int64_t f) { return w < 0 || w == f; });
}

}  // namespace

/// Compares the tensor's shape with the request and fills in the sizes that the tensor decides, and its layout where
/// the shape says it.
bool Binder::check_shape(const checkpoint::TensorInfo& tensor, ParamRequest& request, int64_t members, const Node& at) {
  std::vector<int64_t> wanted = stored_shape(request, members);
  std::string expected = text_of(wanted);
  bool fits = same(wanted, tensor.shape, request.head_dim);
  if (!fits && request.by_shape) {
    request.conv1d = true;
    wanted = stored_shape(request, members);
    expected += " or " + text_of(wanted);
    fits = same(wanted, tensor.shape, request.head_dim);
  }
  if (!fits) {
    problems_.push_back("\"" + tensor.name + "\" has shape " + text_of(tensor.shape) + ", expected " + expected + " (" +
                        at.where() + ")");
    return false;
  }
  if (members > 1) return true;  // whose sizes are known
  const std::vector<int64_t> found =
      with_last_axes_merged(without_ones(tensor.shape, request.shape.size()), request.shape.size());
  for (size_t i = 0; i < request.shape.size(); ++i) {
    if (request.shape[i] < 0) request.shape[i] = found[request.conv1d && request.shape.size() == 2 ? 1 - i : i];
  }
  if (request.units < 0) request.units = request.shape.empty() ? 1 : request.shape[0];
  return true;
}

void Binder::check_type(const checkpoint::TensorInfo& tensor, const Node& at) {
  if (tensor.dtype == DType::F32 || tensor.dtype == DType::F16 || tensor.dtype == DType::BF16 ||
      tensor.dtype == DType::F64)
    return;
  problems_.push_back("\"" + tensor.name + "\" has the element type " + std::string(name_of(tensor.dtype)) +
                      ", expected F32, F16, BF16 or F64 (" + at.where() + ")");
}

void Binder::missing(const std::vector<std::string>& names, const Node& at) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "\"" : " or \"") + view_.prefix + name + "\"";
  for (const std::string& name : names) {
    auto found = unserved_.find(name);
    if (found == unserved_.end()) continue;
    used_.insert(name);
    problems_.push_back("\"" + view_.prefix + name + "\" has the element type " + found->second +
                        ", which is not served (" + at.where() + ")");
    return;
  }
  missing_[at.where()].insert(all);
}

/// Alternative names of the same tensor must hold the same bytes, unless the first match wins.
void Binder::take_spellings(const std::vector<std::string>& names, const checkpoint::TensorInfo& taken,
                            bool first_match, const Node& at) {
  for (const std::string& name : names) {
    const checkpoint::TensorInfo* other = find(name);
    if (!other || other == &taken) continue;
    known_.insert(name);
    if (!first_match && !view_.checkpoint.equal(taken, *other)) {
      problems_.push_back("\"" + taken.name + "\" and \"" + other->name + "\" should be one tensor and differ (" +
                          at.where() + ")");
    }
  }
}

/// Gives `param` the storage of `tie` when it has no tensor of its own or one with the same bytes.
void Binder::share(Param& param, const std::string& tie, const std::string& own, const Node& at) {
  auto target = bound_.find(tie);
  if (target == bound_.end()) {
    if (!own.empty() || absent_.contains(tie)) return;
    refuse_policy(at, "tie: \"" + tie + "\" is not a parameter that is read before this one (\"" + param.path + "\")");
  }
  const Param& other = target->second;
  if (!own.empty() && (param.conv1d != other.conv1d || !view_.checkpoint.equal(*param.tensor, *other.tensor))) return;
  if (!own.empty() && param.tensor != other.tensor) {
    used_.erase(own);
    known_.insert(own);
  }
  param.tensor = other.tensor;
  param.dtype = other.dtype;
  param.keep = other.keep;
  param.shares = other.shares.empty() ? other.path : other.shares;
}

std::optional<Param> Binder::bind(ParamRequest request, const std::vector<std::string>& names, const Binding& row,
                                  const Scope& scope) {
  if (dry_run_) {
    for (const std::string& name : names) known_.insert(name);
    return std::nullopt;
  }
  const Node& at = row.names() ? *row.names() : *row.node;
  const Node *tie = row.option("tie"), *first = row.option("first_match");
  if (first && evaluate_bool(*first, scope.variables)) request.first_match = true;
  Param param{.role = request.role, .path = request.path, .stack = scope.stack, .layer = scope.layer};
  const auto found =
      std::find_if(names.begin(), names.end(), [&](const std::string& name) { return find(name) != nullptr; });
  const bool own = found != names.end();
  if (own) {
    param.tensor = find(*found);
    used_.insert(*found);
    take_spellings(names, *param.tensor, request.first_match, at);
    check_type(*param.tensor, at);
    const bool fits = check_shape(*param.tensor, request, scope.members, at);
    // formats of Linear say nothing about the order in which Conv1D has its matrix
    const bool linear = param.tensor->packed && param.tensor->packed->is_of_linear();
    if (linear && request.conv1d && param.tensor->shape.size() == 2)
      add_problem(at, "\"" + param.tensor->name + "\" is a quantised matrix of a Conv1D, which is not supported");
    if (!fits) {
      absent_.insert(request.path);
      return std::nullopt;
    }
    const bool raised = request.f32_if_f16 && param.tensor->dtype == DType::F16;
    param.dtype = raised ? DType::F32 : param.tensor->dtype;
    param.keep = raised;
    param.f32_if_f16 = request.f32_if_f16;
  } else if (!tie) {
    const Node* optional = row.option("optional");
    if (!optional || !evaluate_bool(*optional, scope.variables)) missing(names, at);
    absent_.insert(request.path);
    return std::nullopt;
  }
  param.conv1d = request.conv1d;
  if (tie) {
    if (own || !names.empty()) param.own_name = view_.prefix + (own ? *found : names.front());
    share(param, tie->text, own ? *found : std::string(), *tie);
  }
  if (!param.tensor) {  // the parameter that it is tied to is missing
    absent_.insert(request.path);
    return std::nullopt;
  }
  if (!own && !check_shape(*param.tensor, request, scope.members, *tie)) return std::nullopt;
  param.conv1d = request.conv1d;  // of the tensor that it is tied to, too
  param.shape = request.shape;
  param.fused = request.fused;
  param.part = request.part;
  param.parts = request.parts;
  param.blocks = request.blocks;
  param.block_part = request.block_part;
  param.offset = request.offset;
  param.stride = request.stride;
  param.units = request.units;
  param.block = request.block;
  param.diagonal_blocks = request.diagonal_blocks;
  param.segments = request.segments;
  param.group = request.group;
  param.member = scope.member;
  param.members = scope.members;
  if (param.shares.empty()) {
    const auto piece = static_cast<int>(param.member) * param.parts + param.part;
    auto [first, fresh] = storage_.emplace(std::pair(param.tensor->name, piece), param.path);
    if (!fresh) param.shares = first->second;
  }
  bound_[param.path] = param;
  return param;
}

}  // namespace pm::policy
