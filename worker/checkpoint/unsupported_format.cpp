// SPDX-License-Identifier: Apache-2.0
// Refuses checkpoints in unsupported formats.
#include "worker/checkpoint/unsupported_format.h"

#include <algorithm>
#include <array>

#include "worker/base/error.h"
#include "worker/checkpoint/random_access_file.h"

namespace pm::checkpoint {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(Reason::ModelUnreadable, message); }

/// File name suffixes of weights in other formats, what they are and how to convert them.
struct Form {
  std::string_view ending, what, way_out;
};
constexpr std::array<Form, 8> forms{{
    {"adapter_model.safetensors", "an adapter (PEFT) without its base model",
     "merge it once: AutoPeftModel...from_pretrained(folder).merge_and_unload().save_pretrained(folder)"},
    {"adapter_model.bin", "an adapter (PEFT) without its base model",
     "merge it once: AutoPeftModel...from_pretrained(folder).merge_and_unload().save_pretrained(folder)"},
    {".h5", "TensorFlow weights",
     "convert them once with transformers 4: AutoModel.from_pretrained(folder, from_tf=True).save_pretrained(folder), "
     "with the architecture's class"},
    {".msgpack", "Flax weights",
     "convert them once with transformers 4: AutoModel.from_pretrained(folder, "
     "from_flax=True).save_pretrained(folder), with the architecture's class"},
    {".ckpt.index", "a TensorFlow checkpoint",
     "convert it once with transformers 4's convert_*_original_tf_checkpoint_to_pytorch"},
    {".onnx", "an ONNX graph", "take the checkpoint that it was exported from"},
    {".pth", "weights of the model's own code",
     "convert them once with transformers' convert_*_weights_to_hf.py of the family"},
    {".ckpt", "a training checkpoint", "save the model out of it once: model.save_pretrained(folder)"},
}};

/// Tensor name suffixes that only quantized checkpoints have.
struct Sign {
  std::string_view ending, method;
};
constexpr std::array<Sign, 9> signs{{{".qweight", "GPTQ or AWQ"},
                                     {".qzeros", "GPTQ or AWQ"},
                                     {".g_idx", "GPTQ"},
                                     {".SCB", "bitsandbytes int8"},
                                     {".weight_format", "bitsandbytes int8"},
                                     {".absmax", "bitsandbytes 4 bit"},
                                     {".weight_packed", "compressed-tensors"},
                                     {".weight_scale_inv", "FP8 blocks"},
                                     {".W_q", "HQQ"}}};

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

void refuse_unsupported_format(const fs::path& folder) {
  const std::vector<std::string> names = names_in(folder);
  for (const Form& form : forms)
    for (const std::string& name : names)
      if (name.ends_with(form.ending))
        refuse(folder.string() + " has its weights in " + name + " only: " + std::string(form.what) +
               ", which is not supported; " + std::string(form.way_out));
}

void refuse_missing_weights(const fs::path& folder) {
  refuse_unsupported_format(folder);
  for (const std::string& name : names_in(folder))
    if (name.ends_with(".safetensors") || name.ends_with(".bin"))
      refuse(folder.string() + " has weights in " + name +
             ", but neither model.safetensors, pytorch_model.bin, a .gguf file nor an index of several files "
             "(model.safetensors.index.json, "
             "pytorch_model.bin.index.json): name a single file model.safetensors, or write the index with "
             "save_pretrained");
  refuse(folder.string() +
         " has no weights: neither model.safetensors nor model.safetensors.index.json, pytorch_model.bin, "
         "pytorch_model.bin.index.json or a .gguf file");
}

void refuse_quantized(const Checkpoint& checkpoint) {
  const auto config = checkpoint.config().find("quantization_config");
  if (config != checkpoint.config().end() && !config->is_null()) return;
  const auto check = [&](const std::string& name) {
    for (const Sign& sign : signs)
      if (name.ends_with(sign.ending) || name.find(".quant_state.") != std::string::npos)
        refuse(checkpoint.folder().string() + " is a quantized checkpoint (" + std::string(sign.method) +
               ": tensor \"" + name +
               "\"), which is not supported; use the checkpoint that it was made from, and spec.precision for smaller "
               "weights");
  };
  for (const auto& [name, info] : checkpoint.tensors()) check(name);
  for (const auto& [name, tensor] : checkpoint.unsupported()) check(name);
}

}  // namespace pm::checkpoint
