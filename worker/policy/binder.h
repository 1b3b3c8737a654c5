// Binds rows of a policy to tensors of a checkpoint and keeps account: which names were read, which are missing, which are left over.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "worker/policy/expression.h"
#include "worker/policy/model.h"

namespace pm::policy {

/// Where names of rows begin, and what expressions mean there.
struct Place {
  std::string prefix, at;
  Scope scope;
  std::string stack;
  int layer = -1;
};

/// What a row has to be.
struct Ask {
  Role role = Role::NormGain;
  std::string path;
  std::vector<int64_t> shape;            ///< logical; -1: as the tensor has it
  int64_t units = 1;                     ///< -1: the first dimension, whatever it is
  int64_t block = 1;                     ///< as Param's
  bool in_out = false;
  Fused fused = Fused::None;
  int part = 0, parts = 1, place = 0;
  int64_t blocks = 1;
  int64_t stored_rows = 0;               ///< of the fused tensor
  int64_t group = 1;
  bool f32_if_f16 = false;
  bool first_wins = false;               ///< of several names the first that is there counts, others may differ and are not loaded
};

/// A row of the policy that is present: names, and options when it is a map.
struct Row {
  const Node* node = nullptr;            ///< of the row, for errors
  const Node* option(std::string_view key) const { return node->get(key); }
  const Node* names() const { return node->is_map() ? node->get("from") : node; }
};

class Binder {
 public:
  Binder(const checkpoint::Checkpoint&, const Node& policy);

  /// The row when it is there and its `when` holds.
  std::optional<Row> row(const Node* node, const Scope&) const;
  /// The names that a row spells, with `suffix` (".weight", ".bias") unless it says =name. First is the preferred one.
  std::vector<std::string> names(const Node& spelled, const Place&, std::string_view suffix) const;
  /// The parameter in the first tensor of `names` that the checkpoint has; without any: the storage of the row's `tie`, nothing when the
  /// row is optional, else it is noted as missing. Problems are collected, not thrown: see finish().
  std::optional<Param> bind(Ask, const std::vector<std::string>& names, const Row&, const Place&);
  /// The first of the row's prefixes that a tensor's name begins with; the last one when none does.
  std::string prefix(const Node* spelled, const Scope&);

  /// Moves the place by a row's `at`: of a list the first below which the checkpoint has a tensor, the last one when it has none.
  void go_to(const Node& at, Place&) const;
  /// Notes what is wrong with a policy's choice of tensors, for finish().
  void complain(const Node& at, const std::string& problem) { problems_.push_back(problem + " (" + at.where() + ")"); }

  /// In a rehearsal names are only noted as known to a part of the policy that is not loaded; nothing is missing.
  void rehearse(bool on) { rehearsal_ = on; }
  bool rehearsing() const { return rehearsal_; }
  /// Throws Error{Model, "ModelUnreadable"} with all that did not fit. Returns the names that are not loaded, sorted.
  std::vector<std::string> finish();

 private:
  bool occurs(const std::string& prefix) const;
  const checkpoint::TensorInfo* find(const std::string& name) const;
  bool check_shape(const checkpoint::TensorInfo&, Ask&, const Node& at);
  void check_type(const checkpoint::TensorInfo&, const Node& at);
  void take_spellings(const std::vector<std::string>& names, const checkpoint::TensorInfo& taken, bool first_wins, const Node& at);
  void share(Param&, const std::string& tie, const std::string& own, const Node& at);
  bool ignored(const std::string& name) const;
  void missing(const std::vector<std::string>& names, const Node& at);

  const checkpoint::Checkpoint& checkpoint_;
  const Node& policy_;
  std::map<std::string, const checkpoint::TensorInfo*> table_;   ///< by name after `rename`
  std::set<std::string> used_, known_, prefixes_{""};
  std::map<std::string, Param> bound_;                           ///< by path
  std::map<std::pair<std::string, int>, std::string> storage_;   ///< (tensor, part) -> path of the first that is it
  std::map<std::string, std::string> unserved_;                  ///< by name after `rename` -> element type
  std::set<std::string> lost_;                                    ///< paths of parameters that the checkpoint lacks
  std::map<std::string, std::set<std::string>> missing_;         ///< file and line of a row -> the names that it looked for in vain
  std::vector<std::string> problems_;
  bool rehearsal_ = false;
};

}  // namespace pm::policy
