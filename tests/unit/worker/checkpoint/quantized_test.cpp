// SPDX-License-Identifier: Apache-2.0
// Quantised matrices are dense tensors: any strips of them are the same parts of the whole, values are those of the
// format, and what lacks a part or does not fit is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "tests/unit/worker/checkpoint/folder.h"
#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/direct_io.h"
#include "worker/checkpoint/quantized/float_codes.h"

namespace pm::checkpoint {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A checkpoint of stored tensors, with random bytes unless they are given.
struct Stored {
  struct Tensor {
    std::string dtype;
    std::vector<int64_t> shape;
    std::string bytes;
  };
  nlohmann::json config = {{"dtype", "bfloat16"}};
  std::map<std::string, Tensor> tensors;
  std::mt19937 random{3};

  static int64_t width(const std::string& dtype) {
    return dtype == "I64" ? 8 : dtype == "F32" || dtype == "I32" ? 4 : dtype == "F16" || dtype == "BF16" ? 2 : 1;
  }
  Stored& add(const std::string& name, const std::string& dtype, std::vector<int64_t> shape, std::string bytes = "") {
    int64_t count = width(dtype);
    for (const int64_t size : shape) count *= size;
    // scales of 16 and 32 bits are positive numbers near 1
    for (int64_t i = 0; bytes.size() < static_cast<size_t>(count); ++i) {
      const bool top = (i + 1) % width(dtype) == 0;
      const bool real = dtype == "F32" || dtype == "F16" || dtype == "BF16";
      bytes += static_cast<char>(real && top ? (dtype == "F16" ? 0x2c : 0x3f)
                                             : random() % (dtype == "F8_E4M3" ? 0x7f : 256));
    }
    tensors[name] = {dtype, std::move(shape), std::move(bytes)};
    return *this;
  }
  template <typename T>
  static std::string numbers(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
  }
  void write(const Folder& folder) const {
    nlohmann::json header = nlohmann::json::object();
    std::string data;
    for (const auto& [name, tensor] : tensors) {
      header[name] = {{"dtype", tensor.dtype},
                      {"shape", tensor.shape},
                      {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
      data += tensor.bytes;
    }
    folder.write("config.json", config.dump());
    folder.write_tensors("model.safetensors", header.dump(), data);
  }
};

Stored fp8(std::vector<int64_t> shape, std::vector<int64_t> grid, std::vector<int64_t> block = {16, 8}) {
  Stored stored;
  stored.config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", block}};
  stored.add("a.weight", "F8_E4M3", std::move(shape)).add("a.weight_scale_inv", "F32", std::move(grid));
  return stored;
}

Stored packed(int bits, bool symmetric, int64_t group, const std::string& scale_type = "BF16") {
  constexpr int64_t out = 37, in = 96;
  Stored stored;
  stored.config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                          {"format", "pack-quantized"},
                                          {"config_groups",
                                           {{"group_0",
                                             {{"targets", {"Linear"}},
                                              {"weights",
                                               {{"num_bits", bits},
                                                {"type", "int"},
                                                {"symmetric", symmetric},
                                                {"strategy", "group"},
                                                {"group_size", group}}}}}}}};
  stored.add("a.weight_packed", "I32", {out, (in * bits + 31) / 32})
      .add("a.weight_scale", scale_type, {out, in / group})
      .add("a.weight_shape", "I64", {2}, Stored::numbers<int64_t>({out, in}));
  if (!symmetric) stored.add("a.weight_zero_point", "I32", {(out * bits + 31) / 32, in / group});
  return stored;
}

Stored gptq(bool act_order, int64_t in = 96, int64_t out = 40) {
  constexpr int64_t group = 32;
  Stored stored;
  stored.config["dtype"] = "float16";
  stored.config["quantization_config"] = {
      {"quant_method", "gptq"}, {"bits", 4}, {"group_size", group}, {"desc_act", act_order}};
  stored.add("a.qweight", "I32", {in / 8, out})
      .add("a.qzeros", "I32", {in / group, out / 8})
      .add("a.scales", "F16", {in / group, out});
  std::vector<int32_t> groups(static_cast<size_t>(in));
  for (size_t i = 0; i < groups.size(); ++i) groups[i] = static_cast<int32_t>(act_order ? i * 7 % 3 : i / group);
  stored.add("a.g_idx", "I32", {in}, Stored::numbers(groups));
  return stored;
}

Stored awq(int64_t in = 96, int64_t out = 40) {
  Stored stored;
  stored.config["quantization_config"] = {
      {"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}, {"version", "gemm"}};
  stored.add("a.qweight", "I32", {in, out / 8})
      .add("a.qzeros", "I32", {in / 32, out / 8})
      .add("a.scales", "F16", {in / 32, out});
  return stored;
}

Stored mxfp4(int64_t out = 22, int64_t blocks = 2) {
  Stored stored;
  stored.config["quantization_config"] = {{"quant_method", "mxfp4"}};
  std::string exponents;
  for (int i = 0; i < 3 * out * blocks; ++i) exponents += static_cast<char>(120 + i % 9);
  stored.add("a.weight_blocks", "U8", {3, out, blocks, 16}).add("a.weight_scales", "U8", {3, out, blocks}, exponents);
  return stored;
}

/// NF4 of bitsandbytes; `nested`: its scales are quantised too.
Stored nf4(bool nested, int64_t out = 22, int64_t in = 96, int64_t block = 16, int64_t scale_block = 10) {
  Stored stored;
  stored.config["quantization_config"] = {{"quant_method", "bitsandbytes"}};
  nlohmann::json state{{"blocksize", block}, {"dtype", "bfloat16"}, {"shape", {out, in}}};
  const int64_t scales = out * in / block;
  if (nested) {
    state.update({{"nested_blocksize", scale_block}, {"nested_offset", 0.25}});
    stored.add("a.weight.nested_quant_map", "F32", {256})
        .add("a.weight.nested_absmax", "F32", {(scales + scale_block - 1) / scale_block});
  }
  const std::string text = state.dump();
  return stored.add("a.weight", "U8", {out * in / 2, 1})
      .add("a.weight.absmax", nested ? "U8" : "F32", {scales})
      .add("a.weight.quant_map", "F32", {16})
      .add("a.weight.quant_state.bitsandbytes__nf4", "U8", {static_cast<int64_t>(text.size())}, text);
}

Stored llm_int8() {
  Stored stored;
  stored.config["quantization_config"] = {{"quant_method", "bitsandbytes"}};
  return stored.add("a.weight", "I8", {22, 35}).add("a.SCB", "F32", {22});
}

std::string refusal(const Stored& stored) {
  Folder folder;
  stored.write(folder);
  try {
    const auto checkpoint = Checkpoint::open(folder.path);
    for (const auto& [name, info] : checkpoint.tensors()) {
      std::string bytes(static_cast<size_t>(info.bytes), '\0');
      const Strip whole{0, 1, info.bytes, info.bytes};
      checkpoint.read(info, {&whole, 1}, std::as_writable_bytes(std::span(bytes)));
    }
    return "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::ModelUnreadable);
    return error.what();
  }
}

class Cuts : public testing::TestWithParam<std::pair<const char*, Stored>> {};

TEST_P(Cuts, AreTheSamePartsOfTheWhole) {
  Folder folder;
  GetParam().second.write(folder);
  const auto checkpoint = Checkpoint::open(folder.path);
  const DirectFiles direct(checkpoint);
  ASSERT_EQ(checkpoint.tensors().size(), 1u) << "parts are no tensors of their own";
  const TensorInfo& tensor = checkpoint.tensors().begin()->second;
  EXPECT_EQ(tensor.name, "a.weight");
  const auto read = [&](const auto& reader, std::span<const Strip> strips) {
    int64_t bytes = 0;
    for (const Strip& strip : strips) bytes += strip.rows * strip.row_bytes;
    std::string out(static_cast<size_t>(bytes), '\0');
    reader.read(tensor, strips, std::as_writable_bytes(std::span(out)));
    return out;
  };
  const Strip all{0, 1, tensor.bytes, tensor.bytes};
  const std::string whole = read(checkpoint, {&all, 1});
  std::mt19937 random(5);
  const int64_t elements = tensor.bytes / 2, columns = tensor.shape.back();
  const auto draw = [&](int64_t below) { return static_cast<int64_t>(random() % static_cast<uint64_t>(below)); };
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<Strip> strips;
    std::string expected;
    for (int64_t i = 0; i <= trial % 3; ++i) {
      const int64_t first = draw(elements), stride = trial % 2 ? columns : 1 + draw(2 * columns),
                    count = 1 + draw(std::min(elements - first, trial % 4 ? columns : elements)),
                    most = (elements - first - count) / stride + 1, rows = 1 + draw(std::min<int64_t>(most, 40));
      strips.push_back({2 * first, rows, 2 * count, 2 * stride});
      for (int64_t row = 0; row < rows; ++row)
        expected += whole.substr(static_cast<size_t>(2 * (first + row * stride)), static_cast<size_t>(2 * count));
    }
    EXPECT_EQ(read(checkpoint, strips), expected) << trial;
    EXPECT_EQ(read(direct, strips), expected) << trial;
  }
  const Strip odd{1, 1, 2, 2};
  std::byte two[2];
  EXPECT_THROW(checkpoint.read(tensor, {&odd, 1}, two), std::invalid_argument);
  const Strip outside{tensor.bytes, 1, 2, 2};
  EXPECT_THROW(checkpoint.read(tensor, {&outside, 1}, two), std::out_of_range);
}

INSTANTIATE_TEST_SUITE_P(
    Quantised, Cuts,
    testing::Values(std::pair{"Blocks", fp8({48, 40}, {3, 5})}, std::pair{"UnevenBlocks", fp8({41, 37}, {3, 5})},
                    std::pair{"OneScale", fp8({41, 37}, {})}, std::pair{"StackedBlocks", fp8({3, 41, 37}, {3, 3, 5})},
                    std::pair{"StackedScales", fp8({3, 41, 37}, {3})}, std::pair{"Int4", packed(4, true, 32)},
                    std::pair{"Zeros", packed(4, false, 16)}, std::pair{"Int8", packed(8, false, 32)},
                    std::pair{"Int3", packed(3, false, 32)}, std::pair{"Gptq", gptq(false)},
                    std::pair{"ActOrder", gptq(true)}, std::pair{"Awq", awq()}, std::pair{"Transposed", mxfp4()},
                    std::pair{"Nf4", nf4(false)}, std::pair{"NestedNf4", nf4(true)}, std::pair{"LlmInt8", llm_int8()}),
    [](const auto& info) { return std::string(info.param.first); });

/// Rows that are read alone are decoded by other tiles than the whole matrix.
TEST(Quantised, RowsOfLargeMatricesAreThoseOfTheWhole) {
  for (Stored stored : {gptq(false, 608, 2056), gptq(true, 608, 2056), awq(608, 2056), mxfp4(1100, 33),
                        fp8({50, 2100}, {5, 263}, {10, 8}), nf4(true, 608, 2080)}) {
    for (const char* type : {"bfloat16", "float32"}) {
      stored.config["dtype"] = type;
      Folder folder;
      stored.write(folder);
      const auto checkpoint = Checkpoint::open(folder.path);
      const TensorInfo& tensor = checkpoint.tensors().begin()->second;
      const auto read = [&](const Strip& strip) {
        std::string bytes(static_cast<size_t>(strip.row_bytes), '\0');
        checkpoint.read(tensor, {&strip, 1}, std::as_writable_bytes(std::span(bytes)));
        return bytes;
      };
      const std::string whole = read({0, 1, tensor.bytes, tensor.bytes});
      const int64_t width = tensor.shape.back() * size_of(tensor.dtype);
      for (int64_t at = 0; at < tensor.bytes; at += 7 * width)
        ASSERT_EQ(read({at, 1, width, width}), whole.substr(static_cast<size_t>(at), static_cast<size_t>(width)))
            << stored.config << at / width;
    }
  }
}

TEST(Quantised, ValuesAreCodeTimesScale) {
  Stored stored = fp8({2, 2}, {1, 2}, {2, 1});
  stored.config["dtype"] = "float32";
  stored.add("a.weight", "F8_E4M3", {2, 2}, std::string("\x38\xb8\x01\x7e", 4));  // 1, -1, 2^-9, 448
  stored.add("a.weight_scale_inv", "F32", {1, 2}, Stored::numbers<float>({3.0f, 0.5f}));
  Folder folder;
  stored.write(folder);
  const auto checkpoint = Checkpoint::open(folder.path);
  const TensorInfo& tensor = *checkpoint.find("a.weight");
  EXPECT_EQ(tensor.dtype, DType::F32);
  float values[4];
  const Strip whole{0, 1, 16, 16};
  checkpoint.read(tensor, {&whole, 1}, std::as_writable_bytes(std::span(values)));
  EXPECT_THAT(values, testing::ElementsAre(3.0f, -0.5f, 3.0f / 512, 224.0f));
}

TEST(Quantised, ValuesOfBitsandbytesAreThoseOfItsTables) {
  Stored stored = nf4(true, 1, 4, 2, 1);
  stored.config["dtype"] = "float32";
  const std::string state = R"({"shape": [1, 4], "blocksize": 2, "nested_blocksize": 2, "nested_offset": 0.5})";
  std::vector<float> table(16), scales(256);
  table[1] = -1, table[2] = 0.25, table[15] = 2, scales[7] = 3, scales[9] = -1;
  stored
      .add("a.weight", "U8", {2, 1}, "\x12\xf1")  // 1 2, 15 1: the upper half is the first
      .add("a.weight.quant_map", "F32", {16}, Stored::numbers(table))
      .add("a.weight.absmax", "U8", {2}, "\x07\x09")
      .add("a.weight.nested_quant_map", "F32", {256}, Stored::numbers(scales))
      .add("a.weight.nested_absmax", "F32", {1}, Stored::numbers<float>({2}))
      .add("a.weight.quant_state.bitsandbytes__nf4", "U8", {static_cast<int64_t>(state.size())}, state);
  Folder folder;
  stored.write(folder);
  const auto checkpoint = Checkpoint::open(folder.path);
  float values[4];
  const Strip whole{0, 1, 16, 16};
  checkpoint.read(*checkpoint.find("a.weight"), {&whole, 1}, std::as_writable_bytes(std::span(values)));
  EXPECT_THAT(values, testing::ElementsAre(-6.5f, 1.625f, -3.0f, 1.5f)) << "scales 3 * 2 + 0.5 and -1 * 2 + 0.5";
}

TEST(Quantised, TheTypeIsThatOfConfigElseOfTheOtherTensors) {
  for (const auto& [key, name, expected] : {std::tuple{"dtype", "float16", DType::F16},
                                            {"torch_dtype", "bfloat16", DType::BF16},
                                            {"dtype", "float32", DType::F32}}) {
    Stored stored = fp8({16, 8}, {1, 1});
    stored.config.erase("dtype");
    stored.config[key] = name;
    Folder folder;
    stored.write(folder);
    EXPECT_EQ(Checkpoint::open(folder.path).find("a.weight")->dtype, expected);
  }
  Stored stored = fp8({16, 8}, {1, 1});
  stored.config.erase("dtype");
  stored.add("norm", "F16", {4});
  Folder folder;
  stored.write(folder);
  EXPECT_EQ(Checkpoint::open(folder.path).find("a.weight")->dtype, DType::F16);
}

TEST(Quantised, ActivationScalesAreNoTensors) {
  Stored stored = fp8({16, 8}, {1, 1});
  stored.add("a.activation_scale", "F32", {}).add("a.input_scale", "F32", {});
  Folder folder;
  stored.write(folder);
  EXPECT_EQ(Checkpoint::open(folder.path).tensors().size(), 1u);
}

TEST(Quantised, AMatrixWithoutItsPartsIsRefused) {
  const std::vector<std::pair<Stored, std::vector<std::string>>> whole = {
      {fp8({16, 8}, {1, 1}), {"a.weight_scale_inv"}},
      {packed(4, false, 32), {"a.weight_scale", "a.weight_shape", "a.weight_zero_point"}},
      {gptq(true), {"a.scales", "a.qzeros", "a.g_idx"}},
      {awq(), {"a.scales", "a.qzeros"}},
      {mxfp4(), {"a.weight_scales"}},
      {nf4(true),
       {"a.weight.absmax", "a.weight.quant_map", "a.weight.nested_absmax", "a.weight.nested_quant_map",
        "a.weight.quant_state.bitsandbytes__nf4"}},
      {llm_int8(), {"a.SCB"}}};
  for (const auto& [stored, parts] : whole) {
    EXPECT_EQ(refusal(stored), "accepted");
    for (const std::string& part : parts) {
      Stored less = stored;
      less.tensors.erase(part);
      EXPECT_THAT(refusal(less), AllOf(HasSubstr("is quantised"), HasSubstr("\"" + part + "\"")));
    }
  }
}

TEST(Quantised, PartsThatDoNotFitAreRefused) {
  EXPECT_THAT(refusal(fp8({40, 8}, {3, 1}, {32, 8})), AllOf(HasSubstr("has shape [3, 1]"), HasSubstr("[40, 8]")));
  EXPECT_THAT(refusal(fp8({3, 16, 8}, {2, 1, 1})), HasSubstr("for each of 3 matrices"));
  EXPECT_THAT(refusal(fp8({16}, {1})), HasSubstr("expected a quantised matrix"));
  Stored stored = fp8({16, 8}, {1, 1});
  stored.add("a.weight_scale_inv", "I32", {1, 1});
  EXPECT_THAT(refusal(stored), HasSubstr("has the element type I32, expected F32"));
  stored = packed(4, true, 32);
  stored.config["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] = 64;
  EXPECT_THAT(refusal(stored), HasSubstr("fit none of the config_groups"));
  stored = packed(4, true, 32);
  stored.config["quantization_config"]["config_groups"]["group_0"]["weights"]["num_bits"] = 8;
  EXPECT_THAT(refusal(stored), HasSubstr("fit none of the config_groups"));
  stored = packed(4, true, 32);
  stored.add("a.weight_shape", "I64", {2}, Stored::numbers<int64_t>({37, 95}));
  EXPECT_THAT(refusal(stored), AllOf(HasSubstr("says [37, 95]"), HasSubstr("[37, 96]")));
  stored = packed(4, true, 32);
  stored.add("a.weight_zero_point", "I32", {5, 3});
  EXPECT_THAT(refusal(stored), HasSubstr("belongs to a symmetric matrix"));
  stored = packed(4, true, 32);
  stored.add("a.weight", "BF16", {37, 96});
  EXPECT_THAT(refusal(stored), HasSubstr("is stored as it is and as codes"));
  stored = gptq(true);
  std::vector<int32_t> groups(96, 0);
  groups[50] = 3;
  stored.add("a.g_idx", "I32", {96}, Stored::numbers(groups));
  EXPECT_THAT(refusal(stored), AllOf(HasSubstr("names the group 3 at 50"), HasSubstr("expected 0 to 2")));
  groups[50] = -1;
  stored.add("a.g_idx", "I32", {96}, Stored::numbers(groups));
  EXPECT_THAT(refusal(stored), HasSubstr("names the group -1"));
  stored = gptq(false);
  stored.config["quantization_config"]["group_size"] = 16;
  EXPECT_THAT(refusal(stored), HasSubstr("expected [6, 40]"));
  stored.config["quantization_config"]["group_size"] = 0;
  EXPECT_THAT(refusal(stored), HasSubstr("group_size 0"));
  stored = awq();
  stored.add("a.scales", "F16", {3, 39});
  EXPECT_THAT(refusal(stored), HasSubstr("expected [3, 40]"));
  stored = mxfp4();
  stored.add("a.weight_blocks", "U8", {3, 22, 2, 8});
  EXPECT_THAT(refusal(stored), HasSubstr("expected [experts, out, in / 32, 16]"));
}

TEST(Quantised, UnknownMethodsAndSettingsAreRefusedByName) {
  const auto with = [](Stored stored, const nlohmann::json& settings) {
    stored.config["quantization_config"].update(settings);
    return refusal(stored);
  };
  EXPECT_THAT(with(fp8({16, 8}, {1, 1}), {{"quant_method", "hqq"}}), AllOf(HasSubstr("\"hqq\""), HasSubstr("fp8, ")));
  EXPECT_THAT(with(packed(4, true, 32), {{"format", "marlin-24"}}), HasSubstr("marlin-24"));
  EXPECT_THAT(with(packed(4, true, 32), {{"transform_config", {{"a", 1}}}}), HasSubstr("transform_config"));
  EXPECT_THAT(with(gptq(false), {{"checkpoint_format", "marlin"}}), HasSubstr("\"marlin\""));
  EXPECT_THAT(with(gptq(false), {{"bits", 5}}), HasSubstr("5 bits"));
  EXPECT_THAT(with(awq(), {{"version", "gemv"}}), HasSubstr("gemv"));
  Stored stored = awq();
  stored.config["quantization_config"] = 4;
  EXPECT_THAT(refusal(stored), HasSubstr("not an object"));
  stored.config["quantization_config"] = nlohmann::json::object();
  EXPECT_THAT(refusal(stored), HasSubstr("quant_method"));
}

TEST(FloatCodes, SixteenBitsAreRoundedToTheNearest) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float f16 = from_f16(half), bf16 = from_bf16(half);
    if (std::isnan(f16))
      EXPECT_TRUE(std::isnan(from_f16(to_f16(f16))));
    else
      EXPECT_EQ(to_f16(f16), half);
    if (std::isnan(bf16))
      EXPECT_TRUE(std::isnan(from_bf16(to_bf16(bf16))));
    else
      EXPECT_EQ(to_bf16(bf16), half);
    if ((bits & 0x7fff) >= 0x7bff) continue;
    // between two neighbors: the middle goes to the even one, anything beside it to the nearer
    const float next = from_f16(static_cast<uint16_t>(half + 1)), middle = (f16 + next) / 2;
    EXPECT_EQ(to_f16(middle), half % 2 ? half + 1 : half);
    EXPECT_EQ(to_f16(std::nextafterf(middle, next)), half + 1);
    EXPECT_EQ(to_f16(std::nextafterf(middle, f16)), half);
  }
  EXPECT_EQ(to_f16(65519.0f), 0x7bff);
  EXPECT_EQ(to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(to_f16(-std::numeric_limits<float>::infinity()), 0xfc00);
}

TEST(FloatCodes, TablesAreThoseOfTheFormats) {
  for (int code = 0; code < 0x7f; ++code) {
    const int exponent = code >> 3, mantissa = code & 7;
    const float size = exponent ? std::ldexp(8.0f + static_cast<float>(mantissa), exponent - 10)
                                : std::ldexp(static_cast<float>(mantissa), -9);
    EXPECT_EQ(from_e4m3(static_cast<uint8_t>(code)), size);
    EXPECT_EQ(std::bit_cast<uint32_t>(from_e4m3(static_cast<uint8_t>(code | 0x80))), std::bit_cast<uint32_t>(-size));
  }
  constexpr std::array<float, 8> sizes{0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (uint8_t code = 0; code < 8; ++code) {
    EXPECT_EQ(from_e2m1(code), sizes[code]);
    EXPECT_EQ(std::bit_cast<uint32_t>(from_e2m1(code | 8)), std::bit_cast<uint32_t>(-sizes[code]));
  }
  EXPECT_EQ(e4m3_values()[0x01], 0x1p-9f);
  EXPECT_EQ(e4m3_values()[0x08], 0x1p-6f);
  EXPECT_EQ(e4m3_values()[0x7e], 448.0f);
  EXPECT_EQ(e4m3_values()[0xc0], -2.0f);
  EXPECT_TRUE(std::isnan(e4m3_values()[0x7f]) && std::isnan(e4m3_values()[0xff]));
  EXPECT_EQ(e8m0_values()[0], 0x1p-127f);
  EXPECT_TRUE(std::isnan(e8m0_values()[255]));
  EXPECT_TRUE(std::isinf(exponent_values()[255]));
}

}  // namespace
}  // namespace pm::checkpoint
