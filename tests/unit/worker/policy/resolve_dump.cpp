// Prints what a checkpoint resolves to as JSON, for the tests that compare with transformers: resolve_dump FOLDER [POLICY].
// resolve_dump --grammar prints the keys of policies, --families the built-in ones: for the tests of documentation.
#include <algorithm>
#include <iostream>

#include "planner/cuts.h"
#include "worker/base/error.h"
#include "worker/policy/document.h"
#include "worker/policy/model.h"

using namespace pm;
using nlohmann::json;

namespace {

json pieces_of(const policy::Param& param) {
  json all = json::array();
  for (const policy::Piece& piece : policy::pieces(param, {0, param.units})) all.push_back({piece.row, piece.rows, piece.col, piece.cols});
  return all;
}

json norm_of(const std::optional<policy::Norm>& norm) {
  if (!norm) return nullptr;
  const char* kinds[] = {"layer", "rms", "rms_zero_centred"};
  return {{"kind", kinds[static_cast<int>(norm->kind)]}, {"eps", norm->eps}, {"gain", norm->gain && norm->gain->tensor ? norm->gain->tensor->name : ""}};
}

json attention_of(const policy::Attention& a) {
  json out{{"mask", a.mask == policy::Mask::Causal ? "causal" : "full"}, {"scale", a.scale}, {"window", a.window}, {"heads", a.heads},
           {"kv_heads", a.kv_heads}, {"head_dim", a.head_dim}, {"source", a.source}, {"norm", norm_of(a.norm)}, {"bias", a.query.bias.has_value()}, {"softcap", a.softcap},
           {"post_norm", norm_of(a.post_norm)}, {"query_norm", norm_of(a.query_norm)}, {"key_norm", norm_of(a.key_norm)}};
  if (a.alibi) out["alibi"] = {{"scaled", a.alibi->scaled}, {"bf16", a.alibi->bf16}};
  if (a.rotary) {
    const char* style = a.rotary->style == policy::RotaryStyle::Half ? "half" : "interleaved";
    out["rotary"] = {{"style", style}, {"dims", a.rotary->dims}, {"theta", a.rotary->theta}, {"scaling", a.rotary->scaling}};
  }
  if (a.bucket_bias) out["buckets"] = {a.bucket_bias->buckets, a.bucket_bias->far, a.bucket_bias->bidirectional};
  return out;
}

json layers_of(const policy::Stack& stack) {
  const char* orders[] = {"pre", "post", "parallel"};
  json all = json::array();
  for (const policy::Layer& layer : stack.layers) {
    json one{{"order", orders[static_cast<int>(layer.order)]}, {"attention", attention_of(layer.attention)}, {"activation", layer.mlp.activation},
             {"gated", layer.mlp.gate.has_value()}, {"mlp_norm", norm_of(layer.mlp.norm)}, {"mlp_post_norm", norm_of(layer.mlp.post_norm)}, {"residual_normed", layer.residual_normed}};
    if (layer.cross) one["cross"] = attention_of(*layer.cross);
    all.push_back(one);
  }
  return all;
}

json stack_of(const policy::Stack& stack) {
  const policy::Input& input = stack.input;
  const char* positions[] = {"none", "learned", "paper", "tensor2tensor"};
  json out{{"layers", layers_of(stack)}, {"positions", stack.positions}, {"output_norm", norm_of(stack.output.norm)}, {"raw_states", stack.output.raw_states}};
  out["input"] = {{"scale", input.scale}, {"position", positions[static_cast<int>(input.position)]}, {"offset", input.position_offset},
                  {"kept", input.position_kept}, {"last", input.position_last}, {"norm", norm_of(input.norm)}, {"tables", json::array()}};
  for (const policy::IndexTable& table : input.tables) out["input"]["tables"].push_back(table.input);
  if (const auto& pooler = stack.output.pooler) {
    out["pooler"] = {{"pool", pooler->pool}, {"norm", norm_of(pooler->norm)}, {"dense", pooler->dense.has_value()}, {"activation", pooler->activation}};
  }
  return out;
}

json head_of(const policy::Head& head) {
  return {{"stack", head.stack}, {"pool", head.pool}, {"outputs", head.outputs}, {"dense", head.dense.has_value()}, {"activation", head.activation},
          {"norm", norm_of(head.norm)}, {"scale_input", head.scale_input}, {"softcap", head.softcap}, {"logits", head.logits.has_value()}, {"classes", head.classes.has_value()},
          {"between", head.between}};
}

json param_of(const policy::Param& param) {
  return {{"path", param.path}, {"role", policy::name_of(param.role)}, {"tensor", param.tensor->name}, {"shape", param.shape}, {"part", param.part},
          {"parts", param.fused == policy::Fused::None ? 1 : param.parts}, {"in_out", param.in_out}, {"units", param.units}, {"shares", param.shares},
          {"layer", param.layer}, {"dtype", name_of(param.dtype)}, {"keep", param.keep}, {"pieces", pieces_of(param)}};
}

/// Weight bytes of the fullest rank when the model is cut over n.
json bytes_at(const Facts& facts, int n) {
  const Cuts cuts = deal(facts, n, facts.dtype);
  int64_t most = 0;
  for (int rank = 0; rank < n; ++rank) most = std::max(most, cuts.weight_bytes(facts, rank));
  return most;
}

/// Weight bytes of each rank at n = 1, 2, 4, in the stored type.
json rank_bytes(const Facts& facts) {
  json all = json::object();
  for (const int n : {1, 2, 4}) {
    const bool enough = std::all_of(facts.stacks.begin(), facts.stacks.end(), [&](const StackFacts& stack) { return stack.heads >= n; });
    if (!enough) continue;
    const Cuts cuts = deal(facts, n, facts.dtype);
    for (int rank = 0; rank < n; ++rank) all[std::to_string(n)].push_back(cuts.weight_bytes(facts, rank));
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
    const policy::Model model = policy::resolve(checkpoint, argc > 2 && std::string_view(argv[2]) != "--bytes" ? argv[2] : "");
    json params = json::array(), stacks = json::object(), heads = json::object();
    for (const policy::Stack& stack : model.stacks) stacks[stack.name] = stack_of(stack);
    for (const policy::Head& head : model.heads) heads[head.name] = head_of(head);
    for (const policy::Param* param : model.params()) params.push_back(param_of(*param));
    if (argc > 2 && std::string_view(argv[2]) == "--bytes") {
      std::cout << json{bytes_at(model.facts, 1), bytes_at(model.facts, 2), bytes_at(model.facts, 4)}.dump() << "\n";
      return 0;
    }
    std::cout << json{{"facts", to_json(model.facts)}, {"params", params}, {"stacks", stacks}, {"heads", heads}, {"topology", model.topology},
                      {"not_loaded", model.not_loaded}, {"wraps", model.wraps}, {"rank_bytes", rank_bytes(model.facts)}, {"eos", model.eos}, {"decoder_start", model.decoder_start}}.dump() << "\n";
    return 0;
  } catch (const Error& error) {
    std::cerr << error.reason << ": " << error.what() << "\n";
    return exit_code(error.kind);
  }
}
