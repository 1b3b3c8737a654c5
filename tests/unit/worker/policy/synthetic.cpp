// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/worker/policy/synthetic.h"

#include <fstream>
#include <random>

namespace pm::policy {

void Synthetic::linear(const std::string& name, int64_t out, int64_t in, bool bias) {
  add(name + ".weight", {out, in});
  if (bias) add(name + ".bias", {out});
}

void Synthetic::norm(const std::string& name, int64_t width) {
  add(name + ".weight", {width});
  add(name + ".bias", {width});
}

void Synthetic::write(const checkpoint::Folder& folder, bool sparse) const {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  int64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    int64_t bytes = tensor.dtype == "F32" ? 4 : tensor.dtype == "F16" || tensor.dtype == "BF16" ? 2 : 1;
    for (int64_t size : tensor.shape) bytes *= size;
    header[name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
    std::minstd_rand random(static_cast<unsigned>(std::hash<std::string>{}(tensor.seed)));
    for (int64_t i = 0; i < bytes && !sparse; ++i) data += static_cast<char>(random());
  }
  const std::string text = header.dump();
  folder.write("config.json", config.dump());
  folder.write_tensors("model.safetensors", text, data);
  if (!sparse) return;
  std::filesystem::resize_file(folder.path / "model.safetensors", 8 + text.size() + static_cast<uintmax_t>(offset));
  std::fstream file(folder.path / "model.safetensors", std::ios::binary | std::ios::in | std::ios::out);
  for (const auto& [name, tensor] : tensors) {  // some bytes of each, so that no two tensors are equal
    const size_t mark = std::hash<std::string>{}(tensor.seed);
    file.seekp(static_cast<std::streamoff>(8 + text.size()) + header[name]["data_offsets"][0].get<int64_t>());
    file.write(reinterpret_cast<const char*>(&mark), sizeof mark);
  }
}

Synthetic tiny_gpt2() {
  Synthetic s;
  s.config = {{"model_type", "gpt2"}, {"architectures", {"GPT2LMHeadModel"}},
              {"n_embd", 20},         {"n_head", 5},
              {"n_layer", 3},         {"vocab_size", 101},
              {"n_positions", 40}};
  s.add("transformer.wte.weight", {101, 20});
  s.add("transformer.wpe.weight", {40, 20});
  for (int l = 0; l < 3; ++l) {
    const std::string at = "transformer.h." + std::to_string(l) + ".";
    s.norm(at + "ln_1", 20);
    s.norm(at + "ln_2", 20);
    for (auto [name, in, out] :
         {std::tuple{"attn.c_attn", 20, 60}, {"attn.c_proj", 20, 20}, {"mlp.c_fc", 20, 80}, {"mlp.c_proj", 80, 20}}) {
      s.add(at + name + ".weight", {in, out});
      s.add(at + name + ".bias", {out});
    }
  }
  s.norm("transformer.ln_f", 20);
  return s;
}

Synthetic tiny_bert() {
  Synthetic s;
  s.config = {{"model_type", "bert"},   {"architectures", {"BertForMaskedLM"}},
              {"hidden_size", 20},      {"num_attention_heads", 5},
              {"num_hidden_layers", 2}, {"intermediate_size", 37},
              {"vocab_size", 101},      {"max_position_embeddings", 40}};
  s.add("bert.embeddings.word_embeddings.weight", {101, 20});
  s.add("bert.embeddings.position_embeddings.weight", {40, 20});
  s.add("bert.embeddings.token_type_embeddings.weight", {2, 20});
  s.norm("bert.embeddings.LayerNorm", 20);
  for (int l = 0; l < 2; ++l) {
    const std::string at = "bert.encoder.layer." + std::to_string(l) + ".";
    for (const char* name :
         {"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"})
      s.linear(at + name, 20, 20);
    s.norm(at + "attention.output.LayerNorm", 20);
    s.linear(at + "intermediate.dense", 37, 20);
    s.linear(at + "output.dense", 20, 37);
    s.norm(at + "output.LayerNorm", 20);
  }
  s.linear("cls.predictions.transform.dense", 20, 20);
  s.norm("cls.predictions.transform.LayerNorm", 20);
  s.add("cls.predictions.bias", {101});
  return s;
}

}  // namespace pm::policy
