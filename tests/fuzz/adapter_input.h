// SPDX-License-Identifier: Apache-2.0
// What tests/fuzz/adapter.cpp reads: base models, and the files of an adapter that the fuzzer's bytes describe.
#pragma once
#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/input.h"
#include "tests/unit/worker/checkpoint/archive.h"
#include "tests/unit/worker/policy/synthetic.h"
#include "worker/checkpoint/torch_file.h"
#include "worker/policy/adapter/adapter_targets.h"
#include "worker/policy/adapter/saved_modules.h"
#include "worker/policy/resolve.h"

namespace pm::fuzz {

/// LLaMA, or Phi-3: the same with one matrix for q, k and v and one for gate and up. The sizes all differ, so that no
/// shape fits another matrix by chance.
inline policy::Synthetic tiny_llama(bool fused) {
  constexpr int64_t hidden = 8, ffn = 6, heads = 5, kv_heads = 1, head_dim = 2, words = 11;
  policy::Synthetic s;
  s.config = {{"model_type", fused ? "phi3" : "llama"},
              {"architectures", {fused ? "Phi3ForCausalLM" : "LlamaForCausalLM"}},
              {"hidden_size", hidden},
              {"num_hidden_layers", 2},
              {"num_attention_heads", heads},
              {"num_key_value_heads", kv_heads},
              {"head_dim", head_dim},
              {"intermediate_size", ffn},
              {"vocab_size", words},
              {"max_position_embeddings", 16}};
  s.add("model.embed_tokens.weight", {words, hidden});
  s.add("lm_head.weight", {words, hidden});
  s.add("model.norm.weight", {hidden});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    s.add(at + "input_layernorm.weight", {hidden});
    s.add(at + "post_attention_layernorm.weight", {hidden});
    const int64_t q = heads * head_dim, kv = kv_heads * head_dim;
    if (fused) {
      s.linear(at + "self_attn.qkv_proj", q + 2 * kv, hidden, false);
      s.linear(at + "mlp.gate_up_proj", 2 * ffn, hidden, false);
    } else {
      s.linear(at + "self_attn.q_proj", q, hidden, false);
      for (const char* name : {"k_proj", "v_proj"}) s.linear(at + "self_attn." + name, kv, hidden, false);
      for (const char* name : {"gate_proj", "up_proj"}) s.linear(at + "mlp." + name, ffn, hidden, false);
    }
    s.linear(at + "self_attn.o_proj", hidden, q, false);
    s.linear(at + "mlp.down_proj", hidden, ffn, false);
  }
  return s;
}

struct Base {
  checkpoint::Checkpoint checkpoint;
  policy::Model model;
  policy::AdapterTargets targets;
  policy::SavedTargets saved;
  explicit Base(const policy::Synthetic& synthetic)
      : checkpoint(opened(synthetic)),
        model(policy::resolve(checkpoint)),
        targets(policy::adapter_targets(model)),
        saved(policy::saved_targets(model)) {}
  Base(const Base&) = delete;  // the model points into the checkpoint, the targets into the model
  Base& operator=(const Base&) = delete;

 private:
  static checkpoint::Checkpoint opened(const policy::Synthetic& synthetic) {
    const checkpoint::Folder folder;
    synthetic.write(folder);
    return checkpoint::Checkpoint::open(folder.path);
  }
};

/// Returns lines of AdapterWeights for factors that fit the model's matrices. Each module has three bytes: which
/// matrix; how it is named, the type of its elements, and where the upper four bits are 11 or more a fault; and the
/// rank, 0 for that of the config. Whole modules that modules_to_save names follow.
inline std::string fitting_lines(const Base& base, const std::string& config, const std::string& bytes) {
  const policy::AdapterTargets& targets = base.targets;
  const nlohmann::json parsed = nlohmann::json::parse(config, nullptr, false);
  const bool says = parsed.is_object() && parsed.contains("r") && parsed["r"].is_number_unsigned();
  constexpr size_t most = 3 * 24;  // more than any model here has
  std::string lines;
  for (size_t i = 0; i + 2 < std::min(bytes.size(), most); i += 3) {
    const auto byte = [&](size_t at) { return static_cast<uint8_t>(bytes[i + at]); };
    const auto& [name, target] = *std::next(targets.begin(), byte(0) % static_cast<int>(targets.size()));
    const int naming = byte(1) & 3, kind = byte(1) >> 2 & 3, fault = byte(1) >> 4;
    const std::string module = naming == 0   ? name
                               : naming == 1 ? "model." + name
                               : naming == 2 ? name.substr(name.find('.') + 1)
                                             : name.substr(name.rfind('.') + 1);
    const char* const types[]{"F32", "F16", "BF16", "F32"};
    const uint64_t rank = byte(2) % 16 != 0 ? byte(2) % 16u : says ? parsed["r"].get<uint64_t>() : 8;
    const auto line = [&](const char* factor, const std::string& rows, const std::string& columns) {
      lines += "base_model.model." + module + factor + " " + types[kind] + (fault == 15 ? "! " : " ") + rows + " " +
               columns + "\n";
    };
    const std::string r = std::to_string(rank), in = std::to_string(target.in), out = std::to_string(target.out);
    line(".lora_A.weight", r, fault == 14 ? out : in);
    if (fault != 13) line(".lora_B.weight", fault == 11 ? in : out, fault == 12 ? in : r);
  }
  if (!parsed.is_object() || !parsed.contains("modules_to_save") || !parsed["modules_to_save"].is_array()) return lines;
  for (const auto& [name, target] : base.saved) {
    const std::string& module = name;  // clang captures no part of a binding
    const auto names = [&module](const nlohmann::json& end) {
      return end.is_string() && module.ends_with(std::string(end));
    };
    if (std::any_of(parsed["modules_to_save"].begin(), parsed["modules_to_save"].end(), names))
      lines += "base_model.model." + name + ".weight BF16 " + std::to_string(target.weight->shape[0]) + " " +
               std::to_string(target.weight->shape[1]) + "\n";
  }
  return lines;
}

/// Weights of an adapter: a file that counts what is read of it, and the tensors that it has.
class AdapterWeights {
 public:
  using Table = std::map<std::string, checkpoint::TensorInfo, std::less<>>;
  enum class Form : uint8_t { Lines, Safetensors, Torch, Fitting };

  /// Fitting ones have been made to lines. Lines describe a tensor each, "NAME TYPE SIZE SIZE", from which header and
  /// elements are made: the file exists only where it is read, so that tensors may have any size. "TYPE!" has a NaN for
  /// its last element.
  AdapterWeights(Form form, const std::string& text) : form_(form == Form::Fitting ? Form::Lines : form) {
    if (form_ == Form::Lines)
      describe(text);
    else
      begin_ = text, size_ = static_cast<int64_t>(text.size());
  }
  AdapterWeights(const AdapterWeights&) = delete;
  AdapterWeights& operator=(const AdapterWeights&) = delete;

  checkpoint::RandomAccessFile file() {
    return {.name = "fuzz/weights", .size = size_, .read = [this](int64_t offset, std::span<char> out) {
              hold(offset >= 0 && static_cast<int64_t>(out.size()) <= size_ - offset, "a read outside of the file");
              reads_.emplace_back(offset, static_cast<int64_t>(out.size()));
              fill(offset, out);
            }};
  }
  std::string bytes(int64_t offset, int64_t count) const {
    std::string out(static_cast<size_t>(count), '\0');
    fill(offset, out);
    return out;
  }
  bool torch() const { return form_ == Form::Torch; }
  int64_t size() const { return size_; }
  /// Returns the tensors that a file of lines was made for. Tensors of other files come from their headers.
  Table table() const {
    if (form_ == Form::Lines) return table_;
    return torch() ? checkpoint::read_torch_file(checkpoint::in_memory(begin_)).tensors
                   : checkpoint::read_safetensors(checkpoint::in_memory(begin_)).tensors;
  }
  /// Where elements begin; 0 where the target does not know.
  int64_t data_begin() const { return form_ == Form::Lines ? static_cast<int64_t>(begin_.size()) : 0; }
  std::vector<std::pair<int64_t, int64_t>>& reads() { return reads_; }  ///< offset and bytes of each

 private:
  void describe(const std::string& text) {
    std::string header;
    int64_t end = 0;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string name, type;
      words >> name >> type;
      const bool broken = type.ends_with('!');
      if (broken) type.pop_back();
      const int64_t width = type == "F64" ? 8 : type == "F32" ? 4 : type == "BF16" || type == "F16" ? 2 : 1;
      std::vector<int64_t> shape;
      int64_t bytes = width;
      for (int64_t size = 0; shape.size() < 4 && words >> size;) {
        shape.push_back(size);
        // A product that is too large makes a span of the wrong length, which the header's reader refuses.
        if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes) || bytes > max_bytes - end) bytes = 1;
      }
      const auto quoted = [](const std::string& word) {
        return nlohmann::json(word).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      };
      const std::string stored = quoted(name);
      header += (header.empty() ? "" : ", ") + stored + ": " + R"({"dtype": )" + quoted(type) + R"(, "shape": )" +
                nlohmann::json(shape).dump() + R"(, "data_offsets": [)" + std::to_string(end) + ", " +
                std::to_string(end + bytes) + "]}";
      checkpoint::TensorInfo& tensor = table_[nlohmann::json::parse(stored).get<std::string>()];
      tensor = {.dtype = type == "F16"    ? DType::F16
                         : type == "BF16" ? DType::BF16
                                          : DType::F32,
                .shape = std::move(shape),
                .offset = end,
                .bytes = bytes};
      end += bytes;
      if (broken && bytes >= width) broken_.emplace_back(end - width, end);
    }
    header = "{" + header + "}";
    begin_ = checkpoint::number(header.size(), 8) + header;
    size_ = static_cast<int64_t>(begin_.size()) + end;
    for (auto& [name, tensor] : table_) tensor.name = name, tensor.offset += static_cast<int64_t>(begin_.size());
  }
  void fill(int64_t offset, std::span<char> out) const {
    for (size_t i = 0; i < out.size(); ++i) {
      const int64_t at = offset + static_cast<int64_t>(i), data = at - static_cast<int64_t>(begin_.size());
      if (data < 0)
        out[i] = begin_[static_cast<size_t>(at)];
      else
        out[i] = static_cast<char>((static_cast<uint64_t>(data) * 2654435761u >> 17) & 0x3f);  // finite in every type
      for (const auto& [first, end] : broken_)
        if (data >= first && data < end) out[i] = '\xff';
    }
  }

  static constexpr int64_t max_bytes = int64_t{1} << 60;
  const Form form_;
  std::string begin_;  ///< the file, or its header
  int64_t size_ = 0;
  Table table_;
  std::vector<std::pair<int64_t, int64_t>> broken_, reads_;
};

}  // namespace pm::fuzz
