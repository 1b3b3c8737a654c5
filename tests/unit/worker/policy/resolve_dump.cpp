// Prints what a checkpoint resolves to as JSON, for the tests that compare with transformers: resolve_dump FOLDER [POLICY]
#include <iostream>

#include "worker/base/error.h"
#include "worker/policy/model.h"

using namespace pm;

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "resolve_dump FOLDER [POLICY]\n";
    return 2;
  }
  try {
    const auto checkpoint = checkpoint::Checkpoint::open(argv[1]);
    const policy::Model model = policy::resolve(checkpoint, argc > 2 ? argv[2] : "");
    nlohmann::json params = nlohmann::json::array();
    for (const policy::Param* param : model.params()) {
      params.push_back({{"path", param->path}, {"role", policy::name_of(param->role)}, {"tensor", param->tensor->name}, {"shape", param->shape},
                        {"part", param->part}, {"parts", param->fused == policy::Fused::None ? 1 : param->parts}, {"in_out", param->in_out},
                        {"units", param->units}, {"shares", param->shares}, {"layer", param->layer}, {"dtype", name_of(param->dtype)}});
    }
    std::cout << nlohmann::json{{"facts", to_json(model.facts)}, {"params", params}, {"not_loaded", model.not_loaded}, {"eos", model.eos}}.dump() << "\n";
    return 0;
  } catch (const Error& error) {
    std::cerr << error.reason << ": " << error.what() << "\n";
    return exit_code(error.kind);
  }
}
