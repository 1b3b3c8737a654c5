// SPDX-License-Identifier: Apache-2.0
// Binds the parameters of a policy to tensors of a checkpoint and records which names were read, which are missing
// and which are left over.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "worker/policy/expression.h"
#include "worker/policy/spec/param.h"

namespace pm::policy {

/// What one policy describes: a checkpoint, or a part of a composite. The part has a section of config.json and the
/// tensors whose names begin with `prefix`, which its policy does not spell.
struct CheckpointView {
  const checkpoint::Checkpoint& checkpoint;
  const nlohmann::json& config;
  std::string prefix;
  std::vector<std::string> others = {};  ///< prefixes of tensors that belong to other views

  /// Returns the name of a tensor here, or nothing when it belongs to another view.
  std::optional<std::string> own_name(const std::string& name) const;
};

/// The prefix of tensor names and the variables of expressions at one place of the policy.
struct Scope {
  std::string prefix, at;
  Variables variables;
  std::string stack;
  int layer = -1;
  int64_t member = 0, members = 1;  ///< of the parameters here, as Param's
};

/// Describes the parameter that a binding has to give.
struct ParamRequest {
  Role role = Role::NormWeight;
  std::string path;
  std::vector<int64_t> shape;  ///< logical; -1: as the tensor has it
  int64_t units = 1;           ///< -1: the first dimension, whatever it is
  int64_t block = 1;           ///< as Param's
  bool conv1d = false;
  bool by_shape = false;  ///< conv1d where the tensor has the shape of that alone
  Fused fused = Fused::None;
  int part = 0, parts = 1, block_part = 0;
  int64_t blocks = 1;
  int64_t stored_rows = 0;         ///< of the fused tensor
  int64_t offset = 0, stride = 0;  ///< as Param's
  int64_t group = 1;
  bool f32_if_f16 = false;
  bool first_match =
      false;  ///< of several names the first that exists is read; the others may differ and are not loaded
  /// As Param's.
  int64_t diagonal_blocks = 1, segments = 1;
  int64_t head_dim = 0;  ///< not 0: the tensor may have the heads and what is within one as two last axes (XLNet)
};

/// An entry of the policy that names a parameter: a name, a list of names, or a map with `from` and options.
struct Binding {
  const Node* node = nullptr;  ///< for errors
  const Node* option(std::string_view key) const { return node->get(key); }
  const Node* names() const { return node->is_map() ? node->get("from") : node; }
};

class Binder {
 public:
  Binder(const CheckpointView&, const Node& policy);

  /// Returns the binding, or nothing when `node` is null or its `when` is false.
  std::optional<Binding> binding(const Node* node, const Variables&) const;
  /// Returns the tensor names of a binding, the preferred one first. `suffix` (".weight", ".bias") is added to all
  /// but =name.
  std::vector<std::string> names(const Node& spelled, const Scope&, std::string_view suffix) const;
  /// Binds the first tensor of `names` that the checkpoint has. Without any, the parameter takes the storage of the
  /// binding's `tie`. Returns nothing when the tensor is optional or missing. Problems are collected for finish(),
  /// not thrown.
  std::optional<Param> bind(ParamRequest, const std::vector<std::string>& names, const Binding&, const Scope&);
  /// Returns the first of the listed prefixes that a tensor's name begins with, or the last one when none does.
  std::string prefix(const Node* spelled, const Variables&);

  /// Appends `at` to the scope. Of a list it takes the first entry under which the checkpoint has a tensor, or the
  /// last one when none has.
  void enter(const Node& at, Scope&) const;
  /// Returns whether the checkpoint has a tensor that the entry names.
  bool has(const Node& spelled, const Scope&, std::string_view suffix) const;
  /// Records a problem for finish().
  void add_problem(const Node& at, const std::string& problem) {
    problems_.push_back(problem + " (" + at.where() + ")");
  }

  /// Leaves the tensors whose names begin so to read_part() of another binder.
  void leave_out(const std::string& prefix) { left_out_.push_back(prefix); }
  /// Of the tensors that nothing reads, only those whose names begin so are reported, but for those that `ignore`
  /// spells behind it.
  void read_part(const std::string& prefix, const Node* ignore);

  /// In a dry run, names are only recorded as known to a part of the policy that is not loaded; none counts as
  /// missing.
  void set_dry_run(bool on) { dry_run_ = on; }
  bool is_dry_run() const { return dry_run_; }
  /// Returns the sorted names of the tensors that are not loaded. Throws Error{ModelUnreadable} that lists
  /// every problem.
  std::vector<std::string> finish();

 private:
  bool occurs(const std::string& prefix) const;
  const checkpoint::TensorInfo* find(const std::string& name) const;
  bool check_shape(const checkpoint::TensorInfo&, ParamRequest&, int64_t members, const Node& at);
  void check_type(const checkpoint::TensorInfo&, const Node& at);
  void take_spellings(const std::vector<std::string>& names, const checkpoint::TensorInfo& taken, bool first_match,
                      const Node& at);
  void share(Param&, const std::string& tie, const std::string& own, const Node& at);
  bool ignored(const std::string& name) const;
  void missing(const std::vector<std::string>& names, const Node& at);

  const CheckpointView& view_;
  const Node& policy_;
  std::vector<std::string> ignored_;                            ///< patterns
  std::vector<std::string> left_out_;                           ///< prefixes
  std::string part_;                                            ///< prefix; empty: there is no part
  std::vector<std::string> ignored_in_part_;                    ///< patterns behind the prefix
  std::map<std::string, const checkpoint::TensorInfo*> table_;  ///< by name in the view after `rename`
  std::set<std::string> used_, known_, prefixes_{""};
  std::map<std::string, Param> bound_;                          ///< by path
  std::map<std::pair<std::string, int>, std::string> storage_;  ///< (tensor, piece) -> path of the first that is it
  std::map<std::string, std::string> unserved_;                 ///< by name after `rename` -> element type
  std::set<std::string> absent_;                                ///< paths of parameters that the checkpoint lacks
  std::map<std::string, std::set<std::string>>
      missing_;  ///< file and line of a parameter -> the names that the checkpoint lacks
  std::vector<std::string> problems_;
  bool dry_run_ = false;
};

}  // namespace pm::policy
