// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/gguf/gguf_model.h"

#include <algorithm>
#include <map>
#include <memory>

#include "worker/base/error.h"
#include "worker/checkpoint/gguf/architecture.h"
#include "worker/checkpoint/gguf/block_matrix.h"
#include "worker/checkpoint/random_access_file.h"

namespace pm::checkpoint {

namespace {

using nlohmann::json;

constexpr int64_t max_experts = 65536, max_factors = 4096;

/// A tensor of one of the files.
struct Placed {
  const GgufTensor* tensor;
  int file;
};

class Builder {
 public:
  Builder(std::span<const RandomAccessFile> files, const json& config, const ReadStored& read)
      : files_(files), stated_config_(config), read_(read) {
    for (const RandomAccessFile& file : files_) headers_.push_back(read_gguf_header(file, GgufLists::AllButTokenizer));
    check_parts();
    for (size_t i = 0; i < headers_.size(); ++i)
      for (const GgufTensor& tensor : headers_[i].tensors) {
        if (!placed_.emplace(tensor.name, Placed{&tensor, static_cast<int>(i)}).second)
          refuse("tensor \"" + tensor.name + "\" is in two of the files");
        all_.push_back(tensor);
      }
  }

  GgufModel build() {
    const GgufArchitecture architecture(metadata(), files_.front().name);
    GgufModel model;
    model.config = stated_config_.is_object() ? stated_config_ : make_config(architecture);
    dense_type_ = float_type(model.config);
    for (const auto& [name, placed] : placed_) {
      if (is_rope_factors(name)) continue;  // part of the config
      if (const auto target = architecture.target(name)) add(*target, placed, model);
    }
    return model;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const { checkpoint::refuse(files_.front(), what); }
  const json& metadata() const { return headers_.front().metadata; }
  const Placed* find(std::string_view name) const {
    const auto found = placed_.find(name);
    return found == placed_.end() ? nullptr : &found->second;
  }
  static bool is_rope_factors(std::string_view name) {
    return name == "rope_freqs.weight" || name == "rope_factors_long.weight" || name == "rope_factors_short.weight";
  }

  /// Checks that the files are the parts of one model, in order.
  void check_parts() const {
    for (size_t i = 0; i < headers_.size(); ++i) {
      const json& own = headers_[i].metadata;
      const json count = own.value("split.count", json(0)), number = own.value("split.no", json(0));
      const bool whole = headers_.size() == 1 && (count == 0 || count == 1);
      if (!whole && (count != headers_.size() || number != i))
        checkpoint::refuse(files_[i], "says that it is part " + number.dump() + " (from 0) of " + count.dump() +
                                          ", expected part " + std::to_string(i) + " of " +
                                          std::to_string(headers_.size()) + ": keep the names of the files");
    }
    int64_t tensors = 0;
    for (const GgufHeader& header : headers_) tensors += static_cast<int64_t>(header.tensors.size());
    const json stated = metadata().value("split.tensors.count", json(tensors));
    if (stated != tensors)
      refuse("says that all parts have " + stated.dump() + " tensors, they have " + std::to_string(tensors));
  }

  /// Returns config.json's dtype; without one F32, in which blocks have their values exactly.
  static DType float_type(const json& config) {
    for (const char* key : {"dtype", "torch_dtype"}) {
      const auto found = config.find(key);
      if (found == config.end() || !found->is_string()) continue;
      const std::string name = found->get<std::string>();
      if (name == "bfloat16" || name == "torch.bfloat16") return DType::BF16;
      if (name == "float16" || name == "torch.float16") return DType::F16;
    }
    return DType::F32;
  }

  json make_config(const GgufArchitecture& architecture) const {
    json config = architecture.config(all_);
    if (json scaling = rope_scaling(architecture); !scaling.is_null()) config["rope_scaling"] = std::move(scaling);
    const auto token = [&](const char* key) { return metadata().value("tokenizer.ggml." + std::string(key), json()); };
    if (const json bos = token("bos_token_id"); bos.is_number_integer()) config["bos_token_id"] = bos;
    json ends = json::array();  // a turn of a conversation ends with a token of its own
    for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"})
      if (const json id = token(key); id.is_number_integer() && std::find(ends.begin(), ends.end(), id) == ends.end())
        ends.push_back(id);
    if (!ends.empty()) config["eos_token_id"] = ends.size() == 1 ? ends.front() : ends;
    return config;
  }

  /// Returns the values of a small tensor of F32 numbers.
  std::vector<float> factors(const Placed& placed) const {
    const GgufTensor& tensor = *placed.tensor;
    if (tensor.type->plain != DType::F32 || tensor.shape.size() != 1 || tensor.shape[0] > max_factors)
      refuse("tensor \"" + tensor.name + "\" is no list of up to 4096 F32 numbers");
    std::vector<float> out(static_cast<size_t>(tensor.shape[0]));
    const TensorInfo info = stored_bytes(placed, 0, tensor.bytes);
    const Strip whole{0, 1, tensor.bytes, tensor.bytes};
    read_(info, {&whole, 1}, std::as_writable_bytes(std::span(out)));
    return out;
  }

  /// Returns rope_scaling as transformers spells it. Factors of frequencies, of which there are none for positions
  /// beyond the original length where rope_freqs holds them, are those of longrope.
  json rope_scaling(const GgufArchitecture& architecture) const {
    const auto value = [&](const char* key) { return architecture.value(std::string("rope.scaling.") + key); };
    const json type = value("type"), factor = value("factor"), length = architecture.value("context_length");
    const json original = value("original_context_length");
    const Placed *freqs = find("rope_freqs.weight"), *longer = find("rope_factors_long.weight"),
                 *shorter = find("rope_factors_short.weight");
    const bool scaled = type.is_string() && type != "none" && type != "longrope";
    if (freqs || (longer && shorter)) {
      if (scaled) refuse("has both factors of rotary frequencies and rope scaling of the type " + type.dump());
      json scaling = {{"rope_type", "longrope"},
                      {"short_factor", factors(freqs ? *freqs : *shorter)},
                      {"long_factor", factors(freqs ? *freqs : *longer)},
                      {"original_max_position_embeddings", original.is_null() ? length : original}};
      const json attention = value("attn_factor");
      if (freqs)
        scaling["attention_factor"] = 1.0;
      else if (attention.is_number())
        scaling["attention_factor"] = attention;
      return scaling;
    }
    const json old = architecture.value("rope.scale_linear");
    if (!scaled && old.is_number() && old != 1) return {{"rope_type", "linear"}, {"factor", old}};
    if (!scaled) return {};
    if (!factor.is_number()) refuse("has rope scaling of the type " + type.dump() + " without a factor");
    if (type == "linear") return {{"rope_type", "linear"}, {"factor", factor}};
    const json attention = value("attn_factor");
    if (type != "yarn" || (attention.is_number() && attention != 1) || !value("yarn_log_multiplier").is_null())
      refuse("has rope scaling of the type " + type.dump() +
             ", which is not read; put the config.json of the original checkpoint beside it");
    json scaling = {{"rope_type", "yarn"}, {"factor", factor}};
    if (original.is_number()) scaling["original_max_position_embeddings"] = original;
    for (const auto& [key, name] : {std::pair{"yarn_beta_fast", "beta_fast"}, {"yarn_beta_slow", "beta_slow"}})
      if (const json beta = value(key); beta.is_number()) scaling[name] = beta;
    return scaling;
  }

  /// Returns bytes of a tensor as they are stored.
  static TensorInfo stored_bytes(const Placed& placed, int64_t first, int64_t bytes) {
    return {.name = placed.tensor->name,
            .dtype = DType::U8,
            .shape = {bytes},
            .file = placed.file,
            .offset = placed.tensor->offset + first,
            .bytes = bytes};
  }

  /// Adds the module's tensor, or one for each expert.
  void add(const GgufTarget& target, const Placed& placed, GgufModel& model) const {
    const size_t at = target.name.find("{e}");
    const GgufTensor& tensor = *placed.tensor;
    if (at == std::string::npos) {
      std::vector<int64_t> shape = tensor.shape;
      if (target.one_row && shape.size() == 1) shape.insert(shape.begin(), 1);
      return add_matrix(target, placed, shape, 0, model);
    }
    if (tensor.shape.size() < 2 || tensor.shape[0] > max_experts)
      refuse("tensor \"" + tensor.name + "\" has " + std::to_string(tensor.shape.size()) +
             " dimensions, expected those of experts stacked along the first, at most 65536");
    const std::vector<int64_t> shape(tensor.shape.begin() + 1, tensor.shape.end());
    for (int64_t expert = 0; expert < tensor.shape[0]; ++expert) {
      GgufTarget own = target;
      own.name.replace(at, 3, std::to_string(expert));
      add_matrix(own, placed, shape, tensor.bytes / tensor.shape[0] * expert, model);
    }
  }

  void add_matrix(const GgufTarget& target, const Placed& placed, const std::vector<int64_t>& shape, int64_t first,
                  GgufModel& model) const {
    const GgufTensor& tensor = *placed.tensor;
    int64_t elements = 1;
    for (const int64_t size : shape) elements *= size;
    TensorInfo info{.name = target.name,
                    .dtype = tensor.type->plain.value_or(dense_type_),
                    .shape = shape,
                    .file = placed.file,
                    .offset = tensor.offset + first};
    if (__builtin_mul_overflow(elements, size_of(info.dtype), &info.bytes))
      refuse("tensor \"" + tensor.name + "\" is larger than 2^63 bytes");
    if (target.transposed && shape.size() == 2) std::swap(info.shape[0], info.shape[1]);
    if (!tensor.type->plain || target.pair_heads > 0 || target.addend != 0 || target.transposed) {
      auto matrix = std::make_shared<BlockMatrix>();
      matrix->dtype = info.dtype;
      matrix->stored = stored_bytes(placed, first, elements / tensor.type->elements * tensor.type->bytes);
      matrix->type = tensor.type;
      matrix->columns = shape.size() == 1 && target.pair_heads > 0 ? 1 : shape.back();
      matrix->rows = elements / matrix->columns;
      matrix->addend = target.addend;
      matrix->transposed = target.transposed;
      if (matrix->columns % tensor.type->elements) refuse_pairs(tensor, target);
      if (target.pair_heads > 0) {
        if (matrix->rows % (2 * target.pair_heads)) refuse_pairs(tensor, target);
        matrix->head_rows = matrix->rows / target.pair_heads;
      }
      info.packed = std::move(matrix);
    }
    if (!model.tensors.emplace(target.name, std::move(info)).second)
      refuse("tensor \"" + tensor.name + "\" is a second one for " + target.name);
  }

  [[noreturn]] void refuse_pairs(const GgufTensor& tensor, const GgufTarget& target) const {
    refuse("tensor \"" + tensor.name + "\" of " + std::to_string(tensor.shape.front()) +
           " rows does not consist of pairs of rows of " + std::to_string(target.pair_heads) + " heads");
  }

  const std::span<const RandomAccessFile> files_;
  const json& stated_config_;
  const ReadStored& read_;
  std::vector<GgufHeader> headers_;
  std::vector<GgufTensor> all_;
  std::map<std::string, Placed, std::less<>> placed_;  ///< by name
  DType dense_type_ = DType::F32;
};

}  // namespace

GgufModel read_gguf_model(std::span<const RandomAccessFile> files, const json& config, const ReadStored& read) {
  return Builder(files, config, read).build();
}

}  // namespace pm::checkpoint
