// Builds the stacks and heads of a Model from the sections of a policy: stacks.cpp (stacks, inputs), heads.cpp, blocks.cpp (attention, MLP, norms).
#pragma once
#include <list>

#include "worker/policy/binder.h"

namespace pm::policy {

/// Values that hold for a whole stack.
struct Sizes {
  int64_t layers = 0, hidden = 0, embedding = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0, positions = 0;
};

class Builder {
 public:
  Builder(const checkpoint::Checkpoint& checkpoint, const Node& policy, Binder& binder, Model& model)
      : checkpoint_(checkpoint), policy_(policy), binder_(binder), model_(model) {}

  /// The stack, unless its `when` is false.
  std::optional<Stack> stack(const std::string& name, const Node& section);
  Head head(const std::string& name, const Node& section, const std::string& default_stack);
  /// The policy's values without a stack's.
  Scope scope() const;

 private:
  /// A stack's own scope, sizes and what its layers have in common.
  struct Context {
    const Node* section = nullptr;
    Place place;
    Sizes sizes;
    const Node* layer = nullptr;
  };
  Context context(const std::string& name, const Node& section);
  Sizes sizes(const Node& section, const Scope&);

  // stacks.cpp
  Input input(const Context&, const Node& section, const std::string& path);
  void position(const Context&, const Node& section, const Place&, const std::string& path, Input&);
  void tables(const Context&, const Node& section, const Place&, const std::string& path, std::vector<IndexTable>&);
  std::optional<Features> features(const Context&, const Node& section, const Place&, const std::string& path);
  std::optional<Pooler> pooler(const Context&, const Node& section, const Place&, const std::string& path);
  Output output(const Context&, const Node& section, const std::string& path);

  // heads.cpp
  Cells cells(const Context&, const Node& section, const Place&, const std::string& path, int64_t width);
  Spans spans(const Context&, const Node& section, const Place& at, const std::string& path, int64_t width);
  Pairs pairs(const Context&, const Node& section, const Place&, const std::string& path, int64_t width);

  // blocks.cpp
  Layer layer(const Context&, int64_t number, const std::string& path);
  Attention attention(const Context&, const Node& section, const Place&, const std::string& path, bool cross);
  void projections(const Context&, const Node& section, const Place&, const std::string& path, int64_t source_width, Attention&);
  void fuse(const Node& kind, const Place&, const Attention&, Ask&, std::vector<std::string>& order);
  void fused_projections(const Context&, const Row&, const Node& section, const Place&, const std::string& path, Attention&);
  std::optional<BucketBias> bucket_bias(const Context&, const Node& section, const Place&, const std::string& path, const Attention&);
  std::optional<Alibi> alibi(const Node& section, const Place&);
  std::optional<Rotary> rotary(const Node& section, const Place&, const Attention&);
  void gate_and_up(const Context&, const Node& section, const Place&, const std::string& path, Mlp&);
  Mlp mlp(const Context&, const Node& section, const Place&, const std::string& path);
  std::optional<Norm> norm(const Context&, const Node* section, const Place&, const std::string& path, int64_t width, std::string_view key = "norm");
  /// weight and bias of a row; `block` and the layer say whether there is a bias and how matrices are stored, `outside` when there is neither.
  std::optional<Linear> linear(const Context&, const Node* row, const Node* block, const Place&, Ask weight, Role bias_role, bool outside = false);
  std::optional<Param> bias(const Row&, const Node* block, const Context&, const Place&, Ask ask, bool outside);
  /// The place of a block in its layer: the layer's `at`, then the block's.
  Place block_place(const Context&, const Node& section, int64_t layer) const;
  std::string activation(const Node* node, const Scope&);

  const checkpoint::Checkpoint& checkpoint_;
  const Node& policy_;
  Binder& binder_;
  Model& model_;
  std::list<Node> lets_;                 ///< stacks' own values; scopes point into it
  std::map<std::string, Context> contexts_;
};

/// The word in a slot: literally, or as an expression's value. `aliases` are other spellings that configs use.
std::string word_of(const Node& node, const Scope&, const std::vector<std::string_view>& allowed);

}  // namespace pm::policy
