// SPDX-License-Identifier: Apache-2.0
// Prints what a checkpoint resolves to as JSON, for the tests that compare with transformers: resolve_dump FOLDER
// [POLICY]. resolve_dump --grammar prints the keys of policies, --families the built-in ones: for the tests of
// documentation.
#include <algorithm>
#include <cmath>
#include <iostream>

#include "planner/partition.h"
#include "worker/base/error.h"
#include "worker/policy/document.h"
#include "worker/policy/families.h"
#include "worker/policy/resolve.h"
#include "worker/policy/roles.h"
#include "worker/policy/tensor_slices.h"

using namespace pm;
using nlohmann::json;

namespace {

json pieces_of(const policy::Param& param) {
  json all = json::array();
  for (const policy::TensorSlice& piece : policy::tensor_slices(param, {0, param.units}))
    all.push_back({piece.row, piece.rows, piece.col, piece.cols});
  return all;
}

/// "" where there is none.
template <typename Enum>
std::string_view word(const std::optional<Enum>& value) {
  return value ? to_string(*value) : "";
}

json norm_of(const std::optional<policy::Norm>& norm) {
  if (!norm) return nullptr;
  const char* kinds[] = {"layer", "rms", "gemma_rms", "layer1p", "affine"};
  return {{"kind", kinds[static_cast<int>(norm->kind)]},
          {"eps", norm->eps},
          {"weight", norm->weight && norm->weight->tensor ? norm->weight->tensor->name : ""}};
}

json attention_of(const policy::Attention& a) {
  json out{{"mask", a.mask == policy::Mask::Causal ? "causal" : "full"},
           {"scale", a.scale},
           {"window", a.window},
           {"heads", a.heads},
           {"kv_heads", a.kv_heads},
           {"head_dim", a.head_dim},
           {"source", a.source},
           {"norm", norm_of(a.norm)},
           {"bias", a.query.bias.has_value()},
           {"softcap", a.softcap},
           {"post_norm", norm_of(a.post_norm)},
           {"query_norm", norm_of(a.projection_norms ? a.projection_norms->query : a.query_norm)},
           {"key_norm", norm_of(a.projection_norms ? a.projection_norms->key : a.key_norm)}};
  if (const auto* window = std::get_if<policy::SlidingWindow>(&a.pattern)) out["sliding_window"] = window->size;
  if (const auto* blocks = std::get_if<policy::BlockSparse>(&a.pattern))
    out["block_sparse"] = {blocks->block, blocks->random};
  if (a.alibi) out["alibi"] = {{"scaled", a.alibi->scaled}, {"bf16", a.alibi->bf16}};
  if (a.rotary) {
    const char* style = a.rotary->style == policy::RotaryStyle::Neox ? "neox" : "interleaved";
    out["rotary"] = {
        {"style", style}, {"dims", a.rotary->dims}, {"theta", a.rotary->theta}, {"scaling", a.rotary->scaling}};
  }
  if (a.relative_position_bias)
    out["buckets"] = {a.relative_position_bias->num_buckets, a.relative_position_bias->max_distance,
                      a.relative_position_bias->bidirectional};
  return out;
}

/// The activation function of a block, and whether it is gated; of experts those of the first.
std::pair<policy::Activation, bool> activation_of(const policy::Mlp& mlp) {
  if (const auto* dense = std::get_if<policy::DenseMlp>(&mlp.kind)) return {dense->activation, false};
  const auto* routed = std::get_if<policy::Experts>(&mlp.kind);
  return {routed ? routed->experts.front().activation : std::get<policy::GatedMlp>(mlp.kind).activation, true};
}

json block_of(const policy::DeltaNet& net) {
  return {{"kind", "delta_net"},      {"key_heads", net.key_heads}, {"value_heads", net.value_heads},
          {"key_dim", net.key_dim},   {"value_dim", net.value_dim}, {"taps", net.taps},
          {"norm", norm_of(net.norm)}};
}

json block_of(const policy::ShortConvolution& block) {
  return {{"kind", "short_convolution"}, {"taps", block.taps}, {"channels", block.units * block.width}};
}

json block_of(const policy::StateSpace& block) {
  return {{"kind", "state_space"},
          {"heads", block.heads},
          {"head_dim", block.head_dim},
          {"groups", block.groups},
          {"state_size", block.state_size},
          {"taps", block.taps},
          {"steps", {block.least_step, std::isinf(block.most_step) ? json() : json(block.most_step)}},
          {"norm", norm_of(block.norm)}};
}

json layers_of(const policy::Stack& stack) {
  const char* orders[] = {"pre", "post", "parallel", "reversible"};
  json all = json::array();
  for (const policy::Layer& layer : stack.layers) {
    const auto [activation, gated] = activation_of(layer.mlp);
    json one{{"order", orders[static_cast<int>(layer.order)]},
             {"attention", attention_of(layer.attention)},
             {"activation", to_string(activation)},
             {"gated", gated},
             {"mlp_norm", norm_of(layer.mlp.norm)},
             {"mlp_post_norm", norm_of(layer.mlp.post_norm)},
             {"residual_normed", layer.residual_normed}};
    one["has_mixer"] = layer.has_mixer;
    one["has_mlp"] = layer.has_mlp;
    if (layer.recurrent)
      one["recurrent"] = std::visit([](const auto& kind) { return block_of(kind); }, layer.recurrent->kind);
    if (layer.cross) one["cross"] = attention_of(*layer.cross);
    json more = json::array();  // norms
    for (const policy::Mlp& mlp : layer.stacked) more.push_back(norm_of(mlp.norm));
    if (const auto& narrow = layer.bottleneck) {
      for (const auto* norm : {&narrow->input_norm, &narrow->attention_norm, &narrow->output_norm})
        more.push_back(norm_of(*norm));
    }
    if (const auto& streams = layer.co_attention) {
      for (const auto* norm : {&streams->across.norm, &streams->attention.norm, &streams->mlp.norm})
        more.push_back(norm_of(*norm));
    }
    if (const auto& beside = layer.beside) {
      for (const auto* norm : {&beside->first_norm, &beside->mlp.norm, &beside->mlp.post_norm})
        more.push_back(norm_of(*norm));
    }
    if (const auto& latent = layer.attention.latent) {
      if (latent->query_norm) more.push_back(norm_of(latent->query_norm));
      more.push_back(norm_of(latent->norm));
    }
    if (layer.input) more.push_back(norm_of(layer.input->norm));
    one["more_norms"] = more;
    all.push_back(one);
  }
  return all;
}

json stack_of(const policy::Stack& stack) {
  const policy::Input& input = stack.input;
  const char* positions[] = {"none", "learned", "axial", "paper", "tensor2tensor"};
  json out{{"layers", layers_of(stack)},
           {"positions", stack.positions},
           {"output_norm", norm_of(stack.output.norm)},
           {"raw_states", stack.output.raw_states}};
  out["input"] = {{"scale", input.scale},
                  {"position", positions[static_cast<int>(input.position)]},
                  {"offset", input.position_offset},
                  {"skip_padding", input.position_skips_padding},
                  {"after_norm", input.position_after_norm},
                  {"norm", norm_of(input.norm)},
                  {"tables", json::array()}};
  for (const policy::IndexTable& table : input.tables) out["input"]["tables"].push_back(table.input);
  if (const auto& pooler = stack.output.pooler) {
    out["pooler"] = {{"pool", to_string(pooler->pool)},
                     {"norm", norm_of(pooler->norm)},
                     {"dense", pooler->dense.has_value()},
                     {"activation", word(pooler->activation)}};
  }
  return out;
}

policy::HeadTransform transform_of(const policy::Head& head) {
  return std::visit(
      [](const auto& spec) -> policy::HeadTransform {
        if constexpr (requires { spec.transform; })
          return spec.transform;
        else
          return {};
      },
      head.kind);
}

json head_of(const policy::Head& head) {
  const policy::HeadTransform transform = transform_of(head);
  const auto* logits = head.as<policy::LogitsSpec>();
  const auto* classes = head.as<policy::ClassesSpec>();
  const auto* similarity = head.as<policy::SimilaritySpec>();
  return {{"stack", head.stack},
          {"pool", word(head.pool())},
          {"outputs", head.outputs},
          {"dense", transform.dense.has_value()},
          {"activation", word(transform.activation)},
          {"norm", norm_of(transform.norm)},
          {"scale_input", transform.scale},
          {"softcap", logits ? logits->softcap : 0},
          {"logits", logits != nullptr},
          {"classes", (classes && classes->linear) || head.as<policy::CellsSpec>()},
          {"between", similarity ? json(similarity->between) : json::array()}};
}

json param_of(const policy::Param& param) {
  return {{"path", param.path},
          {"role", policy::name_of(param.role)},
          {"tensor", param.tensor->name},
          {"shape", param.shape},
          {"part", param.part},
          {"parts", param.fused == policy::Fused::None ? 1 : param.parts},
          {"conv1d", param.conv1d},
          {"units", param.units},
          {"shares", param.shares},
          {"layer", param.layer},
          {"dtype", name_of(param.dtype)},
          {"keep", param.keep},
          {"pieces", pieces_of(param)}};
}

/// Weight bytes of the fullest rank when the model is cut over n.
json bytes_at(const ModelMetadata& metadata, int n) {
  const Partition partition = make_partition(metadata, n, metadata.dtype);
  int64_t most = 0;
  for (int rank = 0; rank < n; ++rank) most = std::max(most, partition.weight_bytes(metadata, rank));
  return most;
}

/// Weight bytes of each rank at n = 1, 2, 4, in the stored type.
json rank_bytes(const ModelMetadata& metadata) {
  json all = json::object();
  for (const int n : {1, 2, 4}) {
    const bool enough = std::all_of(metadata.stacks.begin(), metadata.stacks.end(),
                                    [&](const StackMetadata& stack) { return stack.heads >= n; });
    if (!enough) continue;
    const Partition partition = make_partition(metadata, n, metadata.dtype);
    for (int rank = 0; rank < n; ++rank) all[std::to_string(n)].push_back(partition.weight_bytes(metadata, rank));
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "resolve_dump FOLDER [POLICY | --bytes]\n";
    return 2;
  }
  try {
    if (std::string_view(argv[1]) == "--grammar") {
      std::cout << json(policy::grammar_keys()).dump() << "\n";
      return 0;
    }
    if (std::string_view(argv[1]) == "--families") {
      std::cout << policy::families_json().dump() << "\n";
      return 0;
    }
    const auto checkpoint = checkpoint::Checkpoint::open(argv[1]);
    const policy::Model model =
        policy::resolve(checkpoint, argc > 2 && std::string_view(argv[2]) != "--bytes" ? argv[2] : "");
    json params = json::array(), stacks = json::object(), heads = json::object();
    for (const policy::Stack& stack : model.stacks) stacks[stack.name] = stack_of(stack);
    for (const policy::Head& head : model.heads) heads[head.name] = head_of(head);
    for (const policy::Param* param : model.params()) params.push_back(param_of(*param));
    if (argc > 2 && std::string_view(argv[2]) == "--bytes") {
      std::cout << json{bytes_at(model.metadata, 1), bytes_at(model.metadata, 2), bytes_at(model.metadata, 4)}.dump()
                << "\n";
      return 0;
    }
    std::cout << json{{"metadata", to_json(model.metadata)},
                      {"params", params},
                      {"stacks", stacks},
                      {"heads", heads},
                      {"kind", to_string(model.kind)},
                      {"not_loaded", model.not_loaded},
                      {"shift_tokens", model.shift_tokens},
                      {"rank_bytes", rank_bytes(model.metadata)},
                      {"eos", model.eos},
                      {"decoder_start", model.decoder_start}}
                     .dump()
              << "\n";
    return 0;
  } catch (const Error& error) {
    std::cerr << error.reason << ": " << error.what() << "\n";
    return exit_code(error.kind);
  }
}
