// SPDX-License-Identifier: Apache-2.0
// Builds the stacks and heads of a Model from the sections of a policy: stacks.cpp (stacks, inputs), heads.cpp,
// input/ (clusters, entities, streams, dense vectors, modules that draft), audio/ (convolutions and heads over frames),
// images/ (backbones and heads of detection), layer/ (layers and what stands around their attention), blocks.cpp
// (attention, linears, norms).
#pragma once
#include <array>
#include <list>

#include "worker/policy/binder.h"
#include "worker/policy/spec/model.h"

namespace pm::policy {

/// The sizes of a stack.
struct Sizes {
  int64_t layers = 0, hidden = 0, embedding = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0,
          positions = 0;
};

/// What a decoder of a composite attends to: a stack that another policy builds.
struct OuterSource {
  std::string stack;
  std::optional<int64_t> width;  ///< of the states; absent: they come in the decoder's own width
};

class Builder {
 public:
  /// `outer`: what cross-attention reads whose source is not a stack of this policy's; absent: there is none.
  Builder(const CheckpointView& view, const Node& policy, Binder& binder, Model& model,
          std::optional<OuterSource> outer = std::nullopt)
      : view_(view), policy_(policy), binder_(binder), model_(model), outer_(std::move(outer)) {}

  /// Builds a stack. Returns nothing when its `when` is false.
  std::optional<Stack> stack(const std::string& name, const Node& section);
  /// Builds the module of multi-token prediction beside a stack, as a stack of one layer whose input joins the states
  /// of that one. Throws Error{ModelUnreadable} where the policy describes none, or the checkpoint lacks it.
  Stack mtp_module(const std::string& name, const Node& section);
  Head head(const std::string& name, const Node& section, const std::string& default_stack);
  /// Returns the variables of the policy, without those of a stack.
  Variables variables() const;

 private:
  /// A stack's own scope and sizes, and what its layers have in common.
  struct Context {
    const Node* section = nullptr;
    Scope scope;
    Sizes sizes;
    const Node* layer = nullptr;
    int64_t query_width = 0, value_width = 0;  ///< of what queries and keys read, and values; 0: as sizes.hidden
    int64_t source_width = 0;                  ///< of the rows that a cross block reads; 0: this is none
  };
  /// The section of a head, and what its parts have in common. `width` is that of the states which the next part reads.
  struct HeadScope {
    const Context& context;
    const Node& section;
    Scope scope;
    std::string path;
    int64_t width;
  };
  Context context(const std::string& name, const Node& section);
  Sizes sizes(const Node& section, const Variables&);

  // stacks.cpp
  Input input(const Context&, const Node& section, const std::string& path);
  void image_size(const Context&, const Node& section, const Scope&, Input&);
  void position(const Context&, const Node& section, const Scope&, const std::string& path, Input&);
  static int64_t input_width(const Context&, const Input&);
  void tables(const Node& section, const Scope&, const std::string& path, int64_t width, std::vector<IndexTable>&);
  std::optional<Features> features(const Context&, const Node& section, const Scope&, const std::string& path);
  std::optional<Pooler> pooler(const Context&, const Node& section, const Scope&, const std::string& path);
  /// `width` is that of the states that the layers make.
  Output output(const Context&, const Node& section, const std::string& path, int64_t width);

  // input/axial_positions.cpp
  std::optional<AxialPositions> axial_positions(const Context&, const Node& position, const Scope&,
                                                const std::string& path);

  // input/entities.cpp
  std::optional<Entities> entities(const Context&, const Node& section, const std::string& path);
  std::optional<EntityQueries> entity_queries(const Context&, const Node& section, const Scope&,
                                              const std::string& path, const Attention&);

  // input/streams.cpp
  std::optional<Param> streams(const Context&, const Node& section, const Scope&, const std::string& path);
  std::optional<Targets> targets(const Context&, const Node& section, const Scope&, const std::string& path);
  std::optional<ContentBuckets> content_buckets(const Context&, const Node& section, const Scope&,
                                                const std::string& path, const Attention&);
  // input/clusters.cpp
  struct ClusterSize {
    int64_t ids, width;
  };
  /// Returns how many ids each cluster of the vocabulary has, and how wide their embeddings are.
  static std::vector<ClusterSize> cluster_sizes(const Context&, const Node& section, const Scope&);
  Param cluster_projection(const Context&, const Node& section, const Scope&, const std::string& path, int64_t width);
  void token_clusters(const Context&, const Node& section, const Scope&, const std::string& path, Input&);
  ClustersSpec score_clusters(const HeadScope&);
  std::optional<Memory> memory(const Context&);

  // input/mtp_module.cpp
  std::optional<Scope> mtp_scope(const Context&) const;
  JoinedStates joined_states(const Context&, const Node& section, const Scope&, const std::string& path);

  // input/vectors.cpp
  std::optional<Vectors> vectors(const Context&, const Node& section, const Scope&, const std::string& path);

  // audio/convolutions.cpp
  /// Returns the value of an entry that has to be 1 (or 0 where `may_be_zero`) to 2^20.
  static int64_t small_size(const Node& section, std::string_view key, const Scope&, bool may_be_zero = false);
  std::optional<Convolutions> convolutions(const Context&, const Node& section, const Scope&, const std::string& path);
  std::optional<PositionalConvolution> positional_convolution(const Context&, const Node& position, const Scope&,
                                                              const std::string& path);
  std::optional<BatchNorm> batch_norm(const Node& section, const Scope&, const std::string& path, int64_t width);

  std::optional<ConvolutionBranch> convolution_branch(const Context&, const Scope&, const std::string& path);

  // audio/heads.cpp
  TimeDelaySpec time_delay(HeadScope&);
  CodebookSpec codebook(const HeadScope&, int64_t channels);

  // images/backbone.cpp
  ImageConvolution image_convolution(const Node& section, const Scope&, const std::string& path, int64_t in,
                                     int64_t out, int64_t size);
  std::optional<Backbone> backbone(const Node& section, const Scope&, const std::string& path);
  std::optional<GridPosition> grid(const Context&, const Node& position, const Scope&, const std::string& path);
  std::optional<Param> queries(const Context&, const Node& section, const Scope&, const std::string& path);
  void add_positions(Stack&) const;

  // images/patch_grid.cpp
  void patches(const Context&, const Node& section, const Scope&, const std::string& path, Input&);
  PatchGrid patch_grid(const Context&, const Node& patches, const Scope&, const std::string& path);

  // images/pixels.cpp
  int64_t pixel_positions(const Context&, const Node& section, const Scope&, const std::string& path, Pixels&);
  std::optional<Pixels> pixels(const Context&, const Node& input, const Scope&, const std::string& path);

  // images/heads.cpp
  BoxesSpec boxes(const HeadScope&);
  MaskConvolution mask_convolution(const HeadScope&, const Node& row, const Scope&, const std::string& name, int64_t in,
                                   int64_t out);
  MasksSpec masks(const HeadScope&, const Stack* read);
  PixelShuffleSpec pixel_shuffle(const HeadScope&);

  // heads.cpp
  std::optional<Param> layer_weights(const HeadScope&, const Stack* read);
  std::optional<Pool> pool(HeadScope&, const Stack* read, const std::string& name);
  HeadTransform transform(HeadScope&);
  std::optional<Param> concat(const HeadScope&);
  ClassesSpec classes(HeadScope&, const std::optional<Pool>&, HeadTransform);
  CellsSpec cells(HeadScope&, ClassesSpec tokens);
  SpansSpec spans(const HeadScope&);
  PairsSpec pairs(const HeadScope&);
  SimilaritySpec similarity(const HeadScope&);

  // layer/
  Layer layer(const Context&, int64_t number, const std::string& path);
  Attention absent_attention(const Context&, const Node* section, int64_t number, const std::string& path);
  std::optional<Attention> cross_attention(const Context&, int64_t number, const std::string& path);
  void gate_and_up(const Context&, const Node& section, const Scope&, const std::string& path, GatedMlp&);
  /// Builds the projections of a feed-forward block of `width` columns. Sets `has_gate`.
  GatedMlp feed_forward(const Context&, const Node& section, const Scope&, const std::string& path, Activation,
                        int64_t width, bool& has_gate);
  Mlp mlp(const Context&, const Node& section, const Scope&, const std::string& path);
  std::optional<Xielu> xielu(const Node& mlp, const Scope&, const std::string& path);
  /// Sets what bounds and moves the products of a gated block before they are multiplied.
  static void set_limits(const Node& mlp, const Scope&, GatedMlp&);
  // layer/experts.cpp
  Router router(const Context&, const Node& section, const Scope&, const std::string& path, int64_t experts);
  Node stored_experts(const Node& section, const Scope&, bool& in_one) const;
  GatedMlp gated_block(const Context&, const Node& section, const Scope&, const std::string& path, Activation);
  /// Builds the experts of a layer. Returns nothing where it has none.
  std::optional<Experts> experts(const Context&, const Node& mlp, const Scope&, const std::string& path, Activation);
  std::optional<BesideMlp> beside_mlp(const Context&, int64_t number, const std::string& path);
  std::vector<Mlp> stacked_mlp(const Context&, int64_t number, const std::string& path);
  std::optional<ProjectionNorms> projection_norms(const Context&, const Node& section, const Scope&,
                                                  const std::string& path, const Attention&);
  std::optional<SpanConvolution> span_convolution(const Context&, const Node& section, const Scope&,
                                                  const std::string& path, const Attention&);
  // layer/recurrent/
  /// One part of a tensor whose rows are partitioned by units: how many rows each unit has of it, and what it fills.
  struct UnitPart {
    const char* name;
    int64_t rows;
    Role role;
    Linear* linear;
    bool shared = false;  ///< by all units: `rows` is of all, and every rank has them
  };
  const Node* recurrent_section(const Context&, int64_t number) const;
  Recurrent recurrent(const Context&, const Node& section, int64_t number, const std::string& path);
  static void expect_multiple(const Node& section, int64_t count, const char* of, int64_t groups, const char* what);
  static const Node& needed_row(const Node& section, const char* block, const char* key);
  void unit_parts(const Context&, const Node& row, const Scope&, const std::string& path, const std::vector<UnitPart>&,
                  std::vector<int64_t> inputs, int64_t units, bool by_unit);
  void unit_vector(const Node& row, const Scope&, const std::string& path, int64_t units, int64_t count, Param& target);
  Linear recurrent_out(const Context&, const Node& section, const Scope&, const std::string& path, int64_t columns,
                       int64_t units);
  DeltaNet delta_net(const Context&, const Node& section, const Scope&, const std::string& path);
  ShortConvolution short_convolution(const Context&, const Node& section, const Scope&, const std::string& path);
  StateSpace state_space(const Context&, const Node& section, const Scope&, const std::string& path);
  static std::optional<Chunks> chunks(const Node& section, const Scope&);
  static void pad_to_chunks(Stack&);
  std::vector<std::string> joins(const Context&) const;
  std::optional<CoAttention> co_attention(const Context&, int64_t number, const std::string& path);
  std::optional<Bottleneck> bottleneck(const Context&, int64_t number, const std::string& path);
  /// `width` is that of the queries.
  CrossBlock cross_block(const Context&, const Node& section, const Scope&, const std::string& path, int64_t width,
                         int64_t source_width);
  std::optional<Latents> latents(const Context&, const Node& input, const Scope&, const std::string& path);
  std::optional<OutputQueries> output_queries(const Context&, const Node& output, const Scope&,
                                              const std::string& path);
  /// Returns the context of the blocks inside of a bottleneck.
  static Context inside(const Context&, const Bottleneck&);

  std::optional<Pooling> pooling(const Context&, const Scope&);
  std::optional<Upsampling> upsampling(const Context&, int64_t number, const Scope&);
  static void set_queries_apart(Stack&);

  // layer/activation_ranges.cpp
  /// Returns the binding of an entry that the section must have; nothing where its `when` is false.
  std::optional<Binding> quantized_entry(const Node& section, std::string_view key, const Scope&);
  std::optional<Param> shift(const Node& section, const Scope&, const std::string& path);
  ActivationRange range(const Binding&, const Scope&, const std::string& path);
  ActivationRange range(const Node& section, std::string_view key, const Scope&, const std::string& path);
  std::optional<QuantizedInput> quantized_input(const Node& input, const Scope&, const std::string& path);
  std::optional<QuantizedAttention> quantized_attention(const Node& attention, const Scope&, const std::string& path);
  std::optional<QuantizedMlp> quantized_mlp(const Node& mlp, const Scope&, const std::string& path);
  static void set_input_ranges(const Node& section, Stack&);

  // blocks.cpp
  int64_t set_source(const Context&, const Node& section, Attention&) const;
  Attention attention(const Context&, const Node& section, const Scope&, const std::string& path, bool cross);
  void projections(const Context&, const Node& section, const Scope&, const std::string& path, int64_t source_width,
                   Attention&);
  /// Sets the sizes of the heads.
  void head_sizes(const Context&, const Node& section, const Scope&, Attention&) const;
  void gated_queries(const Context&, const Node& section, const Scope&, const std::string& path, Attention&);
  void fused_keys_and_values(const Context&, const Node& section, const Scope&, const std::string& path, int64_t width,
                             Attention&);
  void fuse(const Node& kind, const Scope&, const Attention&, ParamRequest&, std::vector<std::string>& order);
  void fused_projections(const Context&, const Binding&, const Node& section, const Scope&, const std::string& path,
                         Attention&);
  std::optional<RelativePositionBias> relative_position_bias(const Context&, const Node& section, const Scope&,
                                                             const std::string& path, const Attention&);
  std::optional<Alibi> alibi(const Node& section, const Scope&);
  std::optional<Param> sinks(const Node& section, const Scope&, const std::string& path, int64_t heads);
  // patterns.cpp
  std::optional<RelativeContent> relative_content(const Context&, const Node& section, const Scope&,
                                                  const std::string& path, const Attention&);
  std::optional<RelativeContent::Term> relative_term(const Context&, const Node& section, std::string_view key,
                                                     const Scope&, const std::string& path, const Attention&);
  std::optional<Param> bias_of_queries(const Node& row, const Scope&, const std::string& path, const Attention&);
  std::optional<RelativeContent::Segments> segments(const Node& section, const Scope&, const std::string& path,
                                                    const Attention&);
  std::optional<RelativeContent::HeadVectors> head_vectors(const Node& section, const Scope&, const std::string& path,
                                                           const Attention&, int64_t span);
  int64_t span_of(const Node& section, const Scope&, bool sinusoids);
  void bias_of_part(const Binding& row, int part, const ParamRequest& weight, Role, const Scope&, Linear&);
  Pattern pattern(const Context&, const Node& section, const Scope&, const std::string& path, const Attention&);
  Linear global_projection(const Context&, const Node& section, const Node& window, const Scope&,
                           const std::string& path, const Attention&, Role role);
  // layer/latent_attention.cpp
  /// Builds the projections of an attention whose keys and values are made of latents. Returns whether it is one.
  bool latent_projections(const Context&, const Node& section, const Scope&, const std::string& path, Attention&);
  // layer/rotary.cpp
  std::optional<Rotary> rotary(const Context&, const Node& section, const Scope&, const Attention&);
  std::optional<LongRope> long_rope(const Context&, const Node& rotary, const Scope&, const Rotary&) const;
  // layer/layouts.cpp
  std::optional<int64_t> reused_layer(const Node& attention, const Scope&) const;
  static void set_layouts(const Node& section, Stack&);
  // input/layer_inputs.cpp
  std::optional<LayerInputs> layer_inputs(const Context&, const Node& input, const Scope&, const std::string& path);
  std::optional<LayerInput> layer_input(const Context&, const Scope&, const std::string& path);
  std::optional<Norm> norm(const Context&, const Node* section, const Scope&, const std::string& path, int64_t width,
                           std::string_view key = "norm");
  std::optional<Norm> norm(const Context&, const Node* section, const Scope&, ParamRequest weight,
                           std::string_view key);
  /// Builds weight and bias of a linear. Whether there is a bias and how the matrix is stored is read from the entry,
  /// then from `block`, then from the layer; with `outside` the layer is not asked.
  std::optional<Linear> linear(const Context&, const Node* row, const Node* block, const Scope&, ParamRequest weight,
                               Role bias_role, bool outside = false);
  /// As above, for a projection of a block, whose matrix may be block-diagonal.
  std::optional<Linear> projection(const Context&, const Node* row, const Node& block, const Scope&,
                                   ParamRequest weight, Role bias_role);
  std::optional<Param> bias(const Binding&, const Node* block, const Context&, const Scope&, ParamRequest request,
                            bool outside);
  /// Returns the node of a word, or nullptr where it is an expression that says that there is none.
  static const Node* given(const Node* node, const Variables&);
  /// Returns the scope of a block: the stack's prefix, the layer's `at`, then the block's.
  Scope block_scope(const Context&, const Node& section, int64_t layer) const;
  Activation activation(const Node* node, const Variables&);

  const CheckpointView& view_;
  const Node& policy_;
  Binder& binder_;
  Model& model_;
  std::optional<OuterSource> outer_;
  std::list<Node> lets_;  ///< stacks' own values; scopes point into it
  std::map<std::string, Context> contexts_;
  int64_t experts_ = 0;  ///< of all layers so far
};

/// Returns the keyword that a node holds, literally or as the value of an expression. Throws Error{ModelUnreadable} for
/// a word that is not in `allowed`.
std::string parse_keyword(const Node& node, const Variables&, const std::vector<std::string_view>& allowed);

/// As above, for the words of an enumeration, or some of them.
template <typename Enum>
Enum parse_enum(const Node& node, const Variables& variables,
                const std::vector<std::string_view>& allowed = words<Enum>()) {
  return *parse<Enum>(parse_keyword(node, variables, allowed));
}

/// Returns the kind of norm that a word of norm_words names.
NormKind norm_kind(std::string_view word);

/// Returns a height and a width: the list of two that the node's expression gives, or its number for both. Throws
/// Error{ModelUnreadable} for anything else.
std::array<int64_t, 2> height_and_width(const Node&, const Variables&);

}  // namespace pm::policy
