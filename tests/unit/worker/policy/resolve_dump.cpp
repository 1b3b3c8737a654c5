// Prints what a checkpoint resolves to as JSON, for the tests that compare with transformers: resolve_dump FOLDER [POLICY]
#include <iostream>

#include "worker/base/error.h"
#include "worker/policy/model.h"

using namespace pm;
using nlohmann::json;

namespace {

json pieces_of(const policy::Param& param) {
  json all = json::array();
  for (const policy::Piece& piece : policy::pieces(param, {0, param.units})) all.push_back({piece.row, piece.rows, piece.col, piece.cols});
  return all;
}

json attention_of(const policy::Attention& a) {
  json out{{"mask", a.mask == policy::Mask::Causal ? "causal" : "full"}, {"scale", a.scale}, {"window", a.window}, {"heads", a.heads},
           {"kv_heads", a.kv_heads}, {"head_dim", a.head_dim}, {"alibi", a.alibi.has_value()}, {"source", a.source}};
  if (a.rotary) out["theta"] = a.rotary->theta;
  if (a.bucket_bias) out["buckets"] = {a.bucket_bias->buckets, a.bucket_bias->far, a.bucket_bias->bidirectional};
  return out;
}

json layers_of(const policy::Stack& stack) {
  const char* orders[] = {"pre", "post", "parallel"};
  json all = json::array();
  for (const policy::Layer& layer : stack.layers) {
    json one{{"order", orders[static_cast<int>(layer.order)]}, {"attention", attention_of(layer.attention)}, {"activation", layer.mlp.activation},
             {"gated", layer.mlp.gate.has_value()}, {"mlp_norm", layer.mlp.norm.has_value()}};
    if (layer.cross) one["cross"] = attention_of(*layer.cross);
    all.push_back(one);
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "resolve_dump FOLDER [POLICY]\n";
    return 2;
  }
  try {
    const auto checkpoint = checkpoint::Checkpoint::open(argv[1]);
    const policy::Model model = policy::resolve(checkpoint, argc > 2 ? argv[2] : "");
    json params = json::array(), stacks = json::object();
    for (const policy::Stack& stack : model.stacks) stacks[stack.name] = layers_of(stack);
    for (const policy::Param* param : model.params()) {
      params.push_back({{"path", param->path}, {"role", policy::name_of(param->role)}, {"tensor", param->tensor->name}, {"shape", param->shape},
                        {"part", param->part}, {"parts", param->fused == policy::Fused::None ? 1 : param->parts}, {"in_out", param->in_out},
                        {"units", param->units}, {"shares", param->shares}, {"layer", param->layer}, {"dtype", name_of(param->dtype)}, {"keep", param->keep}, {"pieces", pieces_of(*param)}});
    }
    std::cout << json{{"facts", to_json(model.facts)}, {"params", params}, {"stacks", stacks}, {"not_loaded", model.not_loaded}, {"eos", model.eos}}.dump() << "\n";
    return 0;
  } catch (const Error& error) {
    std::cerr << error.reason << ": " << error.what() << "\n";
    return exit_code(error.kind);
  }
}
