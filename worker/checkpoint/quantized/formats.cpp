// SPDX-License-Identifier: Apache-2.0
// The methods of quantization_config, by name.
#include "worker/checkpoint/quantized/formats.h"

#include "worker/base/error.h"
#include "worker/checkpoint/quantized/assembly.h"
#include "worker/checkpoint/random_access_file.h"

namespace pm::checkpoint {

namespace {

struct Method {
  std::string_view name;
  void (*assemble)(Assembly&);
};
constexpr Method methods[] = {{"fp8", assemble_fp8},
                              {"compressed-tensors", assemble_compressed_tensors},
                              {"mxfp4", assemble_mxfp4},
                              {"gptq", assemble_gptq},
                              {"awq", assemble_awq},
                              {"modelopt", assemble_modelopt},
                              {"bitsandbytes", assemble_bitsandbytes}};

[[noreturn]] void refuse(const std::filesystem::path& folder, const std::string& what) {
  throw Error(Reason::ModelUnreadable,
              printable((folder / "config.json").string() + " has a quantization_config " + what +
                        "; give the checkpoint that it was made from, or a copy in 16 "
                        "bits"));
}

}  // namespace

bool assemble_quantized(const std::filesystem::path& folder, const nlohmann::json& config, TensorTable& tensors,
                        UnsupportedTable& unsupported, const ReadStored& read) {
  const auto found = config.find("quantization_config");
  if (found == config.end() || found->is_null()) return false;
  if (!found->is_object()) refuse(folder, "that is not an object");
  const auto method = found->find("quant_method");
  if (method == found->end() || !method->is_string()) refuse(folder, "without the name of a quant_method");
  std::string known;
  for (const Method& one : methods) {
    known += (known.empty() ? "" : ", ") + std::string(one.name);
    if (one.name != method->get<std::string>()) continue;
    Assembly assembly(folder, config, *found, tensors, unsupported, read);
    one.assemble(assembly);
    assembly.finish();
    return true;
  }
  refuse(folder, "(" + method->dump() + ") of a method that is not supported; supported are " + known);
}

}  // namespace pm::checkpoint
