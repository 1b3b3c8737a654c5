// SPDX-License-Identifier: Apache-2.0
// Measures how fast one thread decodes a matrix of each quantized format to BF16, in turns with a plain read of the
// dense matrix. `bench_stored [ROUNDS] [FORMAT]`.
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>

#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/gguf/block_types.h"

namespace {

using nlohmann::json;
using pm::checkpoint::Checkpoint;
using pm::checkpoint::Strip;

constexpr int64_t out = 4096, in = 11008;  ///< the down projection of a 7B model

/// A stored tensor: its name, its type and its shape.
struct Tensor {
  std::string name, type;
  std::vector<int64_t> shape;
};

struct Format {
  std::string name;
  json quantization;  ///< of config.json; null for a dense matrix
  std::vector<Tensor> tensors;
  std::string_view block_type = {};  ///< of a GGUF file
  std::string_view block_name = "blk.0.ffn_down.weight";
};

json compressed(const json& weights) {
  return {{"quant_method", "compressed-tensors"}, {"config_groups", {{"group_0", {{"weights", weights}}}}}};
}

Format gptq(const std::string& name, bool act_order) {
  Format format{name,
                {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}, {"desc_act", act_order}},
                {{"w.qweight", "I32", {in / 8, out}},
                 {"w.qzeros", "I32", {in / 128, out / 8}},
                 {"w.scales", "F16", {in / 128, out}}}};
  if (act_order) format.tensors.push_back({"w.g_idx", "I32", {in}});
  return format;
}

std::vector<Format> formats() {
  return {
      {"plain read", nullptr, {{"w.weight", "BF16", {out, in}}}},
      {"FP8, blocks of 128",
       {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}},
       {{"w.weight", "F8_E4M3", {out, in}}, {"w.weight_scale_inv", "F32", {out / 128, in / 128}}}},
      {"int4, groups of 128",
       compressed({{"num_bits", 4}, {"group_size", 128}}),
       {{"w.weight_packed", "I32", {out, in / 8}},
        {"w.weight_scale", "BF16", {out, in / 128}},
        {"w.weight_shape", "I64", {2}}}},
      {"NVFP4",
       {{"quant_method", "modelopt"}},
       {{"w.weight", "U8", {out, in / 2}},
        {"w.weight_scale", "F8_E4M3", {out, in / 16}},
        {"w.weight_scale_2", "F32", {}}}},
      {"MXFP4",
       {{"quant_method", "mxfp4"}},
       {{"w.weight_blocks", "U8", {1, out, in / 32, 16}}, {"w.weight_scales", "U8", {1, out, in / 32}}}},
      gptq("GPTQ", false),
      gptq("GPTQ, act-order", true),
      {"AWQ",
       {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 128}},
       {{"w.qweight", "I32", {in, out / 8}},
        {"w.qzeros", "I32", {in / 128, out / 8}},
        {"w.scales", "F16", {in / 128, out}}}},
      {"GGUF, Q4_0", nullptr, {}, "Q4_0"},
      {"GGUF, Q8_0", nullptr, {}, "Q8_0"},
      {"GGUF, Q4_K", nullptr, {}, "Q4_K"},
      {"GGUF, Q5_K", nullptr, {}, "Q5_K"},
      {"GGUF, Q6_K", nullptr, {}, "Q6_K"},
      {"GGUF, Q4_K in pairs", nullptr, {}, "Q4_K", "blk.0.attn_q.weight"},
  };
}

/// Returns random codes, or scales that are positive numbers near 1; shapes and indices of groups are what they are.
std::string bytes_of(const Tensor& tensor, std::mt19937& random) {
  const int64_t width = tensor.type == "I64"          ? 8
                        : tensor.type.ends_with("32") ? 4
                        : tensor.type.ends_with("16") ? 2
                                                      : 1;
  int64_t bytes = width;
  for (const int64_t size : tensor.shape) bytes *= size;
  std::string made(static_cast<size_t>(bytes), '\0');
  const auto put = [&](auto value, int64_t at) {
    std::copy_n(reinterpret_cast<const char*>(&value), sizeof(value), made.data() + at);
  };
  if (tensor.type == "I64") {
    put(out, 0), put(in, 8);
  } else if (tensor.name.ends_with("g_idx")) {
    for (int64_t i = 0; i < in; ++i) put(static_cast<int32_t>(i * 37 % (in / 128)), 4 * i);
  } else {
    const bool scale = tensor.name.find("scale") != std::string::npos;
    for (int64_t i = 0; i < bytes; ++i)
      made[static_cast<size_t>(i)] =
          static_cast<char>(scale && (i + 1) % width == 0 ? (width == 1 ? 0x70 + random() % 8 : 0x3c) : random());
  }
  return made;
}

/// Returns a GGUF file of one matrix of random blocks.
std::string gguf_file(const Format& format, std::mt19937& random) {
  std::string made = "GGUF";
  const auto put = [&](auto value) { made.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  const auto text = [&](std::string_view value) { put(uint64_t{value.size()}), made += value; };
  uint32_t id = 0;
  while (!pm::checkpoint::find_block_type(id) || pm::checkpoint::find_block_type(id)->name != format.block_type) ++id;
  const pm::checkpoint::BlockType& type = *pm::checkpoint::find_block_type(id);
  put(uint32_t{3}), put(uint64_t{1}), put(uint64_t{2});
  text("general.architecture"), put(uint32_t{8}), text("llama");
  text("llama.attention.head_count"), put(uint32_t{4}), put(uint32_t{32});
  text(format.block_name), put(uint32_t{2}), put(in), put(out), put(id), put(uint64_t{0});
  made.resize((made.size() + 31) / 32 * 32);
  const size_t begin = made.size();
  made.resize(begin + static_cast<size_t>(out * in / type.elements * type.bytes));
  for (size_t i = begin; i < made.size(); ++i) made[i] = static_cast<char>(random());
  return made;
}

/// A checkpoint of one matrix in a temporary folder.
class Stored {
 public:
  explicit Stored(const Format& format) {
    std::string name = (std::filesystem::temp_directory_path() / "stored-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    folder_ = name;
    json config = {{"dtype", "bfloat16"}}, header = json::object();
    if (!format.quantization.is_null()) config["quantization_config"] = format.quantization;
    std::mt19937 random(1);
    std::string data;
    for (const Tensor& tensor : format.tensors) {
      const std::string bytes = bytes_of(tensor, random);
      header[tensor.name] = {
          {"dtype", tensor.type}, {"shape", tensor.shape}, {"data_offsets", {data.size(), data.size() + bytes.size()}}};
      data += bytes;
    }
    std::ofstream(folder_ / "config.json") << config;
    if (!format.block_type.empty()) {
      std::ofstream(folder_ / "model.gguf", std::ios::binary) << gguf_file(format, random);
      checkpoint_ = std::make_unique<Checkpoint>(Checkpoint::open(folder_));
      return;
    }
    const std::string text = header.dump();
    const uint64_t length = text.size();
    std::ofstream(folder_ / "model.safetensors", std::ios::binary)
        << std::string(reinterpret_cast<const char*>(&length), sizeof(length)) << text << data;
    checkpoint_ = std::make_unique<Checkpoint>(Checkpoint::open(folder_));
  }
  ~Stored() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Stored(const Stored&) = delete;
  Stored& operator=(const Stored&) = delete;

  /// Reads one of `parts` equal ranges of the matrix's columns; returns the dense bytes of a second.
  double read(int64_t parts, std::span<std::byte> to) const {
    const auto& tensor = checkpoint_->tensors().begin()->second;
    const int64_t row = tensor.shape.back() * 2, rows = tensor.bytes / row, width = row / parts;
    const Strip strip{row - width, rows, width, row};
    const auto target = to.first(static_cast<size_t>(rows * width));
    const auto start = std::chrono::steady_clock::now();
    checkpoint_->read(tensor, {&strip, 1}, target);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    return static_cast<double>(target.size()) / took.count();
  }

 private:
  std::filesystem::path folder_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
  std::vector<Format> all = formats();
  if (argc > 2) std::erase_if(all, [&](const Format& format) { return format.name != argv[2]; });
  std::vector<std::unique_ptr<Stored>> stored;
  for (const Format& format : all) stored.push_back(std::make_unique<Stored>(format));
  std::vector<std::byte> target(2 * out * in);
  struct Best {
    double whole = 0, half = 0;
  };
  std::vector<Best> best(all.size());
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < all.size(); ++i) {
      best[i].whole = std::max(best[i].whole, stored[i]->read(1, target));
      best[i].half = std::max(best[i].half, stored[i]->read(2, target));
    }
  std::printf("a matrix of %ld x %ld as BF16, one thread, best of %d rounds; \"half\" reads half of the columns\n",
              static_cast<long>(out), static_cast<long>(in), rounds);
  std::printf("%-20s %12s %8s %12s %8s\n", "format", "whole, GB/s", "of read", "half, GB/s", "of read");
  for (size_t i = 0; i < all.size(); ++i)
    std::printf("%-20s %12.2f %8.2f %12.2f %8.2f\n", all[i].name.c_str(), best[i].whole / 1e9,
                best[i].whole / best[0].whole, best[i].half / 1e9, best[i].half / best[0].half);
}
