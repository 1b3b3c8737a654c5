// SPDX-License-Identifier: Apache-2.0
// The options of stacks and of each kind of head that this version does not run: one case for each refusal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/worker/models/models.h"
#include "worker/models/model.h"

namespace pm::test {
namespace {

using policy::Pool;

/// A model that runs, what is done to it, and the message with which it is refused then.
struct Refused {
  const char* name;
  std::function<void(policy::Model&)> change;
  const char* message;
};

policy::Attention& self(policy::Model& model) { return model.stacks[0].layers[0].attention; }
policy::Attention& cross(policy::Model& model) { return model.stacks[0].layers[0].cross.emplace(); }
policy::Layer& layer(policy::Model& model) { return model.stacks[0].layers[0]; }
policy::Input& input(policy::Model& model) { return model.stacks[0].input; }

constexpr const char* bare_pattern =
    "has a sparse pattern with grouped heads, positions in attention, softcapped scores or norms of heads";
constexpr const char* content_alone =
    "has relative positions by content beside grouped heads, a sparse pattern or softcapping";
constexpr const char* branch_alone =
    "has a convolution beside layers that are not post-norm, or that are causal or cross";
constexpr const char* bottleneck_alone =
    "has a bottleneck around layers that are not post-norm, or with cross-attention, a convolution, a sparse pattern "
    "or "
    "relative positions by content";
constexpr const char* convolving_alone =
    "has heads that convolve beside attention that is grouped, causal, sparse, of relative positions, crosses or "
    "stands "
    "in parallel layers";
constexpr const char* entities_alone =
    "has queries of entities beside attention that is grouped, causal, sparse, with positions in it, crosses or stands "
    "in parallel layers";
constexpr const char* buckets_alone =
    "has content_buckets beside grouped heads, attention that is not causal, a pattern, softcapping, other positions "
    "in attention, norms of heads, a bottleneck, scores in place of attentions, or in parallel layers";
constexpr const char* streams_alone =
    "has streams beside tokens that are not the sum of a token's and a position's learned row";
/// Makes the layer one whose queries say what distances count.
policy::Attention& in_buckets(policy::Model& model) {
  self(model).mask = policy::Mask::Causal;
  self(model).content_buckets.emplace();
  return self(model);
}
constexpr const char* chunks_alone =
    "has attention in chunks that is grouped, crosses, has another pattern, positions in it, norms of heads, "
    "softcapped scores or further heads";
constexpr const char* sinks_alone =
    "has attention sinks in cross-attention, or beside a pattern, chunks, content_buckets or integers";
constexpr const char* reversible_alone =
    "has two residual streams beside further blocks, norms behind blocks, or positions in attention";
constexpr const char* differs_alone =
    "has norms of values, values that are keys, keys of earlier layers or heads of several sizes beside "
    "cross-attention, a pattern, positions by content or further heads";
constexpr const char* beside_alone =
    "has blocks beside the MLP, inputs of layers or factors of states in layers that are not plainly pre-norm";
/// Makes the layer one of attention in chunks.
policy::Attention& in_chunks(policy::Model& model) {
  self(model).chunks.emplace();
  return self(model);
}
/// Makes the layer one of two residual streams.
policy::Layer& reversible(policy::Model& model) {
  layer(model).order = policy::Order::Reversible;
  return layer(model);
}
/// Puts a bottleneck around a post-norm layer.
policy::Layer& narrow(policy::Model& model) {
  layer(model).order = policy::Order::Post;
  layer(model).bottleneck.emplace();
  return layer(model);
}
/// Makes the second of three post-norm layers pool, whose scores read sinusoids of distances.
policy::Stack& pools(policy::Model& model) {
  policy::Stack& stack = model.stacks[0];
  stack.layers.resize(3);
  for (policy::Layer& one : stack.layers) {
    one.order = policy::Order::Post;
    one.attention.relative_content.emplace().content_to_position.emplace();
  }
  stack.layers[1].pooling.emplace();
  return stack;
}
constexpr const char* pooling_alone =
    "pools rows of layers that are not post-norm, have cross-attention, a bottleneck or a convolution, or whose "
    "attention does not read sinusoids of distances";
/// Gives the stack a memory, and causal attention whose scores read sinusoids of distances.
policy::Attention& remembers(policy::Model& model) {
  model.stacks[0].memory.emplace();
  self(model).mask = policy::Mask::Causal;
  self(model).relative_content.emplace().content_to_position.emplace();
  return self(model);
}
constexpr const char* memory_alone =
    "has a memory in layers that are parallel, have cross-attention, a bottleneck or a convolution, or whose attention "
    "is not causal with projected distances";
/// Makes latents read the input of the stack.
policy::Stack& reads_by_latents(policy::Model& model) {
  input(model).latents.emplace();
  return model.stacks[0];
}
constexpr const char* latents_alone =
    "has latents whose layers cross, convolve, or attend otherwise than by queries, keys and values alone";
/// Makes the stack one of audio.
void hears(policy::Model& model) {
  input(model).token.reset();
  input(model).convolutions.emplace().layers.resize(1);
}

class Stacks : public testing::TestWithParam<Refused> {};

TEST_P(Stacks, AreRefused) {
  policy::Model changed = model();
  EXPECT_EQ(refusal(changed), "runs");
  GetParam().change(changed);
  EXPECT_EQ(refusal(changed), std::string("TinyModel (tiny) ") + GetParam().message +
                                  ", which this version does not run; `families` lists what runs");
}

INSTANTIATE_TEST_SUITE_P(
    OfEachKind, Stacks,
    testing::ValuesIn(std::vector<Refused>{
        {"NoInput", [](auto& m) { input(m).token.reset(); },
         "has the stack \"encoder\" without tokens, patches, audio and vectors"},
        {"MaskTokenWithoutPatches", [](auto& m) { input(m).mask_token.emplace(); },
         "has a token for masked patches without patches"},
        {"AudioBesideTokens", [](auto& m) { input(m).convolutions.emplace(); },
         "has audio beside tokens, patches or tables"},
        {"AudioBesideLatePositions", [](auto& m) { hears(m), input(m).position_after_norm = true; },
         "has audio beside tokens, patches or tables"},
        {"PositionalConvolutionOverTokens", [](auto& m) { input(m).positional_convolution.emplace(); },
         "has a positional convolution without audio"},
        {"RmsNormOfConvolutions",
         [](auto& m) { hears(m), input(m).convolutions->layers[0].norm = policy::Norm{.kind = policy::NormKind::Rms}; },
         "has convolutions with norms that are not LayerNorm or group norm"},
        {"SpeakersOfTokens", [](auto& m) { m.heads.push_back(head("speaker", policy::TimeDelaySpec{})); },
         "has a time delay network over something else than audio"},
        {"CodebookOfTokens", [](auto& m) { m.heads.push_back(head("codes", policy::CodebookSpec{})); },
         "has a codebook of something else than audio"},
        {"CellsWithoutTables", [](auto& m) { input(m).position_reset_per_cell = true; },
         "has positions in cells without their columns and rows"},
        {"FeaturesAtSinusoids",
         [](auto& m) { input(m).features = features(), input(m).position = policy::PositionKind::Paper; },
         "has dense vectors beside tokens whose positions are not learned ones of their columns"},
        {"FeaturesAtPositionsWithoutPadding",
         [](auto& m) { input(m).features = features(), input(m).position_skips_padding = true; },
         "has dense vectors beside tokens whose positions are not learned ones of their columns"},
        {"FeaturesBeforeALatePosition",
         [](auto& m) { input(m).features = features(), input(m).position_after_norm = true; },
         "has dense vectors beside tokens whose positions are not learned ones of their columns"},
        {"FeaturesBehindAPoolerOfTheLast",
         [](auto& m) { input(m).features = features(), m.stacks[0].output.pooler.emplace().pool = Pool::Last; },
         "pools the last of tokens and dense vectors"},
        {"UpsamplingOfAllTokens",
         [](auto& m) { pools(m).layers[0].upsampling = policy::Upsampling{.stride = 2, .added_layer = 0}; },
         "upsamples rows that are not pooled"},
        {"UpsamplingWithPooledStates",
         [](auto& m) { pools(m).layers[2].upsampling = policy::Upsampling{.stride = 2, .added_layer = 2}; },
         "adds states of rows that are pooled to those of all tokens"},
        {"PoolingOfEntities", [](auto& m) { pools(m), input(m).entities.emplace(), input(m).positions.emplace(); },
         "pools rows that are not those of tokens alone"},
        {"PoolerBehindPooling", [](auto& m) { pools(m).output.pooler.emplace(); },
         "has a pooler behind layers that pool"},
        {"PoolingWithoutDistances", [](auto& m) { pools(m).layers[2].attention.relative_content.reset(); },
         pooling_alone},
        {"PoolingBeforeNorms", [](auto& m) { pools(m).layers[0].order = policy::Order::Pre; }, pooling_alone},
        {"PoolingWithATable", [](auto& m) { pools(m).layers[0].attention.relative_content->table.emplace(); },
         pooling_alone},
        {"MixedLayersThatPool",
         [](auto& m) {
           pools(m), m.heads.push_back(head("mixed", classes(Pool::First)));
           m.heads[0].layer_weights.emplace();
         },
         "has a head that reads all hidden states of layers that pool"},
        {"HeadOfPooledRows", [](auto& m) { pools(m), m.heads.push_back(head("each", classes(std::nullopt))); },
         "has a head that reads more than the first of pooled rows"},
        {"MemoryBesideFeatures", [](auto& m) { remembers(m), input(m).features = features(); },
         "has a memory beside rows that are not those of tokens alone, or a pooler"},
        {"MemoryBeforeAPooler", [](auto& m) { remembers(m), m.stacks[0].output.pooler.emplace(); },
         "has a memory beside rows that are not those of tokens alone, or a pooler"},
        {"MemoryThatAllSee", [](auto& m) { remembers(m).mask = policy::Mask::Full; }, memory_alone},
        {"MemoryWithoutDistances", [](auto& m) { remembers(m).relative_content.reset(); }, memory_alone},
        {"PoolingWithVectors", [](auto& m) { pools(m).layers[0].attention.relative_content->head_vectors.emplace(); },
         pooling_alone},
        {"MemoryWithVectors", [](auto& m) { remembers(m).relative_content->head_vectors.emplace(); }, memory_alone},
        {"MemoryOfSegments", [](auto& m) { remembers(m).relative_content->segments.emplace(); }, memory_alone},
        {"MemoryInParallelLayers", [](auto& m) { remembers(m), layer(m).order = policy::Order::Parallel; },
         memory_alone},
        {"ValuesWithAWidthOfTheirOwnThatAreGrouped", [](auto& m) { self(m).value_dim = 3, self(m).kv_heads = 1; },
         "has values with a width of their own in attention that is grouped, causal, sparse or has further terms"},
        {"LatentsBehindNorms", [](auto& m) { reads_by_latents(m).layers[0].order = policy::Order::Post; },
         "has latents, or values with a width of their own, in layers that are not pre-norm"},
        {"NormsOfValuesBesideChunks", [](auto& m) { in_chunks(m).value_norm.emplace(); }, differs_alone},
        {"RawKeysBesideASparsePattern",
         [](auto& m) { self(m).values_are_keys = true, self(m).pattern = policy::BlockSparse{}; }, differs_alone},
        {"KeysOfEarlierLayersBesideSinks", [](auto& m) { self(m).reuses = 0, self(m).sinks.emplace(); },
         "has keys of earlier layers beside attention sinks, norms of whole projections or rotated values"},
        {"BlocksBesideTheMlpOfParallelLayers",
         [](auto& m) { layer(m).beside.emplace(), layer(m).order = policy::Order::Parallel; }, beside_alone},
        {"FactorsOfPostNormLayers", [](auto& m) { layer(m).factor.emplace(), layer(m).order = policy::Order::Post; },
         beside_alone},
        {"InputsOfLayersThatPool", [](auto& m) { pools(m).input.layer_inputs.emplace(); },
         "has inputs of layers beside rows that are not those of tokens alone"},
        {"InputsThatNothingMakes", [](auto& m) { layer(m).input.emplace(), layer(m).order = policy::Order::Pre; },
         "has layers that read inputs which its stack does not make"},
        {"SinksOfASource", [](auto& m) { cross(m).sinks.emplace(); }, sinks_alone},
        {"SinksBesideAPattern", [](auto& m) { self(m).sinks.emplace(), self(m).pattern = policy::BlockSparse{}; },
         sinks_alone},
        {"QueriesWithoutLatents", [](auto& m) { m.stacks[0].output.queries.emplace(); },
         "has queries of latents or blocks of layers without latents"},
        {"BlocksWithoutLatents", [](auto& m) { layer(m).repeats_state = true; },
         "has queries of latents or blocks of layers without latents"},
        {"LatentsOfOneOfTwoStacks", [](auto& m) { reads_by_latents(m), m.stacks.push_back(m.stacks[0]); },
         "has latents beside a memory, streams, dense vectors, entities, audio, pooling, projections or other stacks"},
        {"LatentsWithRotations", [](auto& m) { reads_by_latents(m).layers[0].attention.rotary.emplace(); },
         latents_alone},
        {"LatentsThatCross", [](auto& m) { reads_by_latents(m), cross(m); }, latents_alone},
        {"CausalQueriesOfLatents",
         [](auto& m) { reads_by_latents(m).output.queries.emplace().block.attention.mask = policy::Mask::Causal; },
         "has latents that read, or are read, otherwise than by queries, keys and values alone"},
        {"NormOfLatentsThatAreRead",
         [](auto& m) { reads_by_latents(m).output.queries.emplace(), m.stacks[0].output.norm.emplace(); },
         "has a norm of latents before queries that read them"},
        {"PixelsWithoutLatents", [](auto& m) { input(m) = {}, input(m).pixels.emplace(); },
         "has pixels that no latents read"},
        {"PixelsBesideTokens", [](auto& m) { reads_by_latents(m), input(m).pixels.emplace(); },
         "has pixels beside tokens, positions, tables, patches, audio, vectors or a norm"},
        {"ParallelCross", [](auto& m) { cross(m), layer(m).order = policy::Order::Parallel; },
         "has cross-attention in parallel layers"},
        {"CrossRotary", [](auto& m) { cross(m).rotary.emplace(); }, "has positions in cross-attention"},
        {"CrossAlibi", [](auto& m) { cross(m).alibi.emplace(); }, "has positions in cross-attention"},
        {"CrossBias", [](auto& m) { cross(m).relative_position_bias.emplace(); }, "has positions in cross-attention"},
        {"NormedResidualAfter", [](auto& m) { layer(m).residual_normed = true, layer(m).order = policy::Order::Post; },
         "has a normed residual in layers that are not pre-norm"},
        {"PostNormOfAttention", [](auto& m) { self(m).post_norm.emplace(), layer(m).order = policy::Order::Post; },
         "has norms after the blocks of layers that are not pre-norm"},
        {"PostNormOfMlp", [](auto& m) { layer(m).mlp.post_norm.emplace(), layer(m).order = policy::Order::Parallel; },
         "has norms after the blocks of layers that are not pre-norm"},
        {"SoftcapAndAlibi", [](auto& m) { self(m).softcap = 5, self(m).alibi.emplace(); },
         "has softcapped scores with a bias"},
        {"SoftcapAndBias", [](auto& m) { self(m).softcap = 5, self(m).relative_position_bias.emplace(); },
         "has softcapped scores with a bias"},
        {"CrossSoftcap", [](auto& m) { cross(m).softcap = 5; },
         "has softcapped scores or further norms in cross-attention"},
        {"CrossQueryNorm", [](auto& m) { cross(m).query_norm.emplace(); },
         "has softcapped scores or further norms in cross-attention"},
        {"CrossPostNorm", [](auto& m) { cross(m).post_norm.emplace(); },
         "has softcapped scores or further norms in cross-attention"},
        {"WindowBesideAPattern",
         [](auto& m) { self(m).pattern = policy::BlockSparse{}, self(m).window = 4; },
         "has a window beside a sparse pattern"},
        {"ContentOfGroupedHeads", [](auto& m) { self(m).relative_content.emplace(), self(m).heads = 4; },
         content_alone},
        {"ContentInGeneration",
         [](auto& m) {
           remembers(m), m.task = policy::Task::Generate;
           m.heads.push_back(head("lm", policy::LogitsSpec{}));
         },
         "generates with relative positions by content"},
        {"ContentInAPattern",
         [](auto& m) { self(m).relative_content.emplace(), self(m).pattern = policy::BlockSparse{}; }, content_alone},
        {"ContentWithSoftcap", [](auto& m) { self(m).relative_content.emplace(), self(m).softcap = 5; }, content_alone},
        {"ContentInCross", [](auto& m) { cross(m).relative_content.emplace(); },
         "has relative positions by content in cross-attention"},
        {"BranchOfAPreNormLayer", [](auto& m) { layer(m).branch.emplace(), layer(m).order = policy::Order::Pre; },
         branch_alone},
        {"BranchOfACausalLayer",
         [](auto& m) {
           layer(m).branch.emplace(), layer(m).order = policy::Order::Post, self(m).mask = policy::Mask::Causal;
         },
         branch_alone},
        {"BranchBesideCross",
         [](auto& m) { layer(m).branch.emplace(), layer(m).order = policy::Order::Post, cross(m); }, branch_alone},
        {"BottleneckOfAPreNormLayer", [](auto& m) { narrow(m).order = policy::Order::Pre; }, bottleneck_alone},
        {"BottleneckBesideCross", [](auto& m) { narrow(m), cross(m); }, bottleneck_alone},
        {"BottleneckAroundAPattern",
         [](auto& m) { narrow(m).attention.pattern = policy::BlockSparse{}; }, bottleneck_alone},
        {"BottleneckAroundContent", [](auto& m) { narrow(m).attention.relative_content.emplace(); }, bottleneck_alone},
        {"ConvolvingBesideGroupedHeads",
         [](auto& m) { self(m).span_convolution.emplace(), self(m).heads = 4; }, convolving_alone},
        {"ConvolvingUnderAMask",
         [](auto& m) { self(m).span_convolution.emplace(), self(m).mask = policy::Mask::Causal; }, convolving_alone},
        {"ConvolvingInAPattern",
         [](auto& m) { self(m).span_convolution.emplace(), self(m).pattern = policy::BlockSparse{}; },
         convolving_alone},
        {"ConvolvingBesideContent",
         [](auto& m) { self(m).span_convolution.emplace(), self(m).relative_content.emplace(); }, convolving_alone},
        {"ConvolvingInCross", [](auto& m) { cross(m).span_convolution.emplace(); }, convolving_alone},
        {"ConvolvingInParallel",
         [](auto& m) { self(m).span_convolution.emplace(), layer(m).order = policy::Order::Parallel; },
         convolving_alone},
        {"EntityQueriesOfGroupedHeads",
         [](auto& m) { self(m).entity_queries.emplace(), self(m).heads = 4; }, entities_alone},
        {"EntityQueriesUnderAMask",
         [](auto& m) { self(m).entity_queries.emplace(), self(m).mask = policy::Mask::Causal; }, entities_alone},
        {"EntityQueriesWithABias",
         [](auto& m) { self(m).entity_queries.emplace(), self(m).relative_position_bias.emplace(); }, entities_alone},
        {"EntityQueriesInCross", [](auto& m) { cross(m).entity_queries.emplace(); }, entities_alone},
        {"EntitiesWithoutPositions", [](auto& m) { input(m).entities.emplace(); },
         "has entities beside patches, audio or dense vectors, or without learned positions of tokens as wide as "
         "states"},
        {"BucketsOfGroupedHeads", [](auto& m) { in_buckets(m).heads = 4; }, buckets_alone},
        {"BucketsInBothDirections", [](auto& m) { in_buckets(m).mask = policy::Mask::Full; }, buckets_alone},
        {"BucketsInAWindow", [](auto& m) { in_buckets(m).window = 4; }, buckets_alone},
        {"BucketsWithSoftcap", [](auto& m) { in_buckets(m).softcap = 5; }, buckets_alone},
        {"BucketsWithAlibi", [](auto& m) { in_buckets(m).alibi.emplace(); }, buckets_alone},
        {"BucketsWithRotary", [](auto& m) { in_buckets(m).rotary.emplace(); }, buckets_alone},
        {"BucketsWithABias", [](auto& m) { in_buckets(m).relative_position_bias.emplace(); }, buckets_alone},
        {"BucketsWithQueryNorm", [](auto& m) { in_buckets(m).query_norm.emplace(); }, buckets_alone},
        {"BucketsOfScores", [](auto& m) { in_buckets(m).shows_scores = true; }, buckets_alone},
        {"BucketsInParallel", [](auto& m) { in_buckets(m), layer(m).order = policy::Order::Parallel; },
         buckets_alone},
        {"BucketsInCross", [](auto& m) { cross(m).content_buckets.emplace(); },
         "has content_buckets in cross-attention"},
        {"ChunksOfGroupedHeads", [](auto& m) { in_chunks(m).heads = 4; }, chunks_alone},
        {"ChunksInAPattern", [](auto& m) { in_chunks(m).pattern = policy::BlockSparse{}; }, chunks_alone},
        {"ChunksAtDistances", [](auto& m) { in_chunks(m).alibi.emplace(); }, chunks_alone},
        {"ChunksOfCross", [](auto& m) { cross(m).chunks.emplace(); }, chunks_alone},
        {"ChunksInOneLayer", [](auto& m) { in_chunks(m), m.stacks[0].layers.emplace_back(); },
         "has attention in chunks in some layers of a stack only"},
        {"ReversibleInOneLayer", [](auto& m) { reversible(m), m.stacks[0].layers.emplace_back(); },
         "has two residual streams in some layers of a stack only"},
        {"ReversibleWithPostNorm", [](auto& m) { reversible(m).mlp.post_norm.emplace(); }, reversible_alone},
        {"ReversibleScaled", [](auto& m) { reversible(m).residual_multiplier = 2; }, reversible_alone},
        {"ReversibleCross", [](auto& m) { reversible(m), cross(m); }, reversible_alone},
        {"ReversibleRotary", [](auto& m) { reversible(m).attention.rotary.emplace(); }, reversible_alone},
        {"ReversibleBeforeAPooler", [](auto& m) { reversible(m), m.stacks[0].output.pooler.emplace(); },
         "has two residual streams before a pooler or a projection"},
        {"AxialBesideFeatures", [](auto& m) { input(m).axial.emplace(), input(m).features = features(); },
         "has axial positions beside patches, audio, dense vectors, entities, streams or other positions"},
        {"StreamsWithoutBuckets", [](auto& m) { input(m).streams.emplace(); },
         "has streams without content_buckets in each layer, or in parallel layers"},
        {"StreamsAtSinusoids",
         [](auto& m) {
           in_buckets(m), input(m).streams.emplace(), input(m).position = policy::PositionKind::Paper;
         },
         streams_alone},
        {"StreamsOfScaledTokens", [](auto& m) { in_buckets(m), input(m).streams.emplace(), input(m).scale = 2; },
         streams_alone},
        {"StreamsBesideTypes",
         [](auto& m) { in_buckets(m), input(m).streams.emplace(), input(m).tables = {table("token_type_ids")}; },
         streams_alone},
        {"StackedInParallel",
         [](auto& m) { layer(m).stacked.resize(1), layer(m).order = policy::Order::Parallel; },
         "has stacked feed-forward blocks in parallel layers"},
        {"PostNormOfStacked", [](auto& m) { layer(m).stacked.resize(1), layer(m).stacked[0].post_norm.emplace(); },
         "has norms after stacked feed-forward blocks"},
        {"AffineNormOfHeads",
         [](auto& m) { self(m).key_norm = policy::Norm{.kind = policy::NormKind::Affine}; },
         "has norms of heads without statistics"},
        {"TokensProjectedBesideVectors",
         [](auto& m) { input(m).project_tokens = true, input(m).features.emplace(); },
         "projects tokens beside patches, audio or dense vectors, or before a norm that comes last"},
        {"TrigramsAsTheyAre", [](auto& m) { input(m).trigram = true; }, "has trigrams that are not projected"},
        {"PatternInCross", [](auto& m) { cross(m).pattern = policy::BlockSparse{}; },
         "has a sparse pattern in attention that is causal or crosses"},
        {"PatternInCausal",
         [](auto& m) { self(m).pattern = policy::SlidingWindow{}, self(m).mask = policy::Mask::Causal; },
         "has a sparse pattern in attention that is causal or crosses"},
        {"PatternOfGroupedHeads", [](auto& m) { self(m).pattern = policy::BlockSparse{}, self(m).heads = 4; },
         bare_pattern},
        {"PatternWithAlibi", [](auto& m) { self(m).pattern = policy::BlockSparse{}, self(m).alibi.emplace(); },
         bare_pattern},
        {"PatternWithRotary", [](auto& m) { self(m).pattern = policy::SlidingWindow{}, self(m).rotary.emplace(); },
         bare_pattern},
        {"PatternWithBias",
         [](auto& m) { self(m).pattern = policy::BlockSparse{}, self(m).relative_position_bias.emplace(); },
         bare_pattern},
        {"PatternWithSoftcap", [](auto& m) { self(m).pattern = policy::BlockSparse{}, self(m).softcap = 5; },
         bare_pattern},
        {"PatternWithQueryNorm",
         [](auto& m) { self(m).pattern = policy::SlidingWindow{}, self(m).query_norm.emplace(); }, bare_pattern},
        {"PatternWithKeyNorm", [](auto& m) { self(m).pattern = policy::SlidingWindow{}, self(m).key_norm.emplace(); },
         bare_pattern},
        {"NoLanguageModelHead", [](auto& m) { m.task = policy::Task::Generate; },
         "has no language-model head for its task"},
        {"GeneratingInBothDirections",
         [](auto& m) {
           m.task = policy::Task::Generate;
           m.heads.push_back(head("lm", policy::LogitsSpec{}));
         },
         "generates with attention that is not causal"},
        {"OtherHeadsInCross",
         [](auto& m) {
           m.task = policy::Task::Generate;
           m.heads.push_back(head("lm", policy::LogitsSpec{}));
           self(m).mask = policy::Mask::Causal;
           cross(m).kv_heads = 2;
         },
         "has cross-attention whose heads are not those of its self-attention"}}),
    [](const auto& info) { return std::string(info.param.name); });

constexpr const char *no_cells = "has cells without one score per token, or without their columns and rows",
                     *no_mean =
                         "has a mean of heads that do not stand before it, each with one vector per sequence and "
                         "as many classes",
                     *last_of_features = "pools the last of tokens and dense vectors";

class Heads : public testing::TestWithParam<Refused> {};

/// A model with a head of each kind, all of which run.
policy::Model every_kind() {
  policy::Model all = model();
  input(all).features = features();
  input(all).tables = {table("token_type_ids", 0), table("token_type_ids", 1), table("token_type_ids", 2)};
  all.heads = {head("logits", policy::LogitsSpec{}),
               head("class", classes(Pool::First)),
               head("other", classes(Pool::Second)),
               head("token", classes(std::nullopt)),
               head("cells", policy::CellsSpec{}),
               head("spans", policy::SpansSpec{}),
               head("pairs", policy::PairsSpec{}),
               head("similarity", policy::SimilaritySpec{.between = {"class", "other"}, .scalar = {}}),
               head("mean", policy::MeanSpec{.of = {"class", "other"}})};
  all.heads[5].outputs = {"a", "b", "c", "d", "e"};
  return all;
}

TEST_P(Heads, AreRefused) {
  policy::Model changed = every_kind();
  EXPECT_EQ(refusal(changed), "runs");
  GetParam().change(changed);
  EXPECT_EQ(refusal(changed), std::string("TinyModel (tiny) ") + GetParam().message +
                                  ", which this version does not run; `families` lists what runs");
}

INSTANTIATE_TEST_SUITE_P(
    OfEachKind, Heads,
    testing::ValuesIn(std::vector<Refused>{
        {"LogitsOfTheLastBeforeFeatures",
         [](auto& m) { std::get<policy::LogitsSpec>(m.heads[0].kind).pool = Pool::Last; }, last_of_features},
        {"ClassesOfTheLastBeforeFeatures",
         [](auto& m) { std::get<policy::ClassesSpec>(m.heads[3].kind).pool = Pool::Last; }, last_of_features},
        {"NamedTokensBeforeFeatures",
         [](auto& m) { std::get<policy::ClassesSpec>(m.heads[3].kind).pool = Pool::ClsIndex; },
         "pools named tokens of rows that are not those of a text alone"},
        {"PixelsOfTokens", [](auto& m) { m.heads.push_back(head("pixels", policy::PixelShuffleSpec{})); },
         "has pixels of states that are not those of an image's patches"},
        {"CellsWithoutColumns", [](auto& m) { input(m).tables[1] = table("token_type_ids"); }, no_cells},
        {"CellsWithoutRows", [](auto& m) { input(m).tables.pop_back(); }, no_cells},
        {"SpansUnderFourNames", [](auto& m) { m.heads[5].outputs.pop_back(); }, "has spans with 4 outputs and not 5"},
        {"SpansUnderSixNames", [](auto& m) { m.heads[5].outputs.push_back("f"); },
         "has spans with 6 outputs and not 5"},
        {"PairsWithoutFeatures", [](auto& m) { input(m).features.reset(); },
         "has pairs of tokens and dense vectors without such vectors"},
        {"PairsOfNoStack", [](auto& m) { m.heads[6].stack = "vision"; },
         "has pairs of tokens and dense vectors without such vectors"},
        {"MeanOfALaterHead", [](auto& m) { std::swap(m.heads[2], m.heads[8]); }, no_mean},
        {"MeanOfNoHead", [](auto& m) { std::get<policy::MeanSpec>(m.heads[8].kind).of[1] = "none"; }, no_mean},
        {"MeanOfItself", [](auto& m) { std::get<policy::MeanSpec>(m.heads[8].kind).of[0] = "mean"; }, no_mean},
        {"MeanOfTokens", [](auto& m) { std::get<policy::MeanSpec>(m.heads[8].kind).of[0] = "token"; }, no_mean},
        {"MeanOfTheVocabulary",
         [](auto& m) {
           std::get<policy::LogitsSpec>(m.heads[0].kind).pool = Pool::First;
           std::get<policy::MeanSpec>(m.heads[8].kind).of[0] = "logits";
         },
         no_mean},
        {"MeanOfStates", [](auto& m) { std::get<policy::ClassesSpec>(m.heads[1].kind).linear.reset(); }, no_mean},
        {"MeanOfOtherClasses", [](auto& m) { m.heads[1].kind = classes(Pool::First, 4); }, no_mean}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Check, TheLastOfTokensAloneMayBePooled) {
  EXPECT_EQ(refusal(model({head("score", classes(Pool::Last))})), "runs");
}

TEST(Check, ADecoderWithStreamsRuns) {
  policy::Model decoder = model({head("lm", policy::LogitsSpec{})});
  in_buckets(decoder);
  input(decoder).streams.emplace();
  EXPECT_EQ(refusal(decoder), "runs");
}

TEST(Check, AStackWithAMemoryRuns) {
  policy::Model changed = model();
  remembers(changed).window = 4;
  EXPECT_EQ(refusal(changed), "runs");
}

}  // namespace
}  // namespace pm::test
