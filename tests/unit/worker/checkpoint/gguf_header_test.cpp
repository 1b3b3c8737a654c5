// SPDX-License-Identifier: Apache-2.0
// Tests the header of GGUF files: what is read, and that every count, length and offset is checked against the file.
#include "worker/checkpoint/gguf/gguf_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/checkpoint/archive.h"
#include "tests/unit/worker/checkpoint/gguf_bytes.h"
#include "worker/base/error.h"

namespace pm::checkpoint {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

GgufHeader read(const std::string& bytes, GgufLists lists = GgufLists::All) {
  return read_gguf_header(in_memory(bytes), lists);
}

std::string refusal(const std::string& bytes) {
  try {
    read(bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::ModelUnreadable);
    EXPECT_THAT(error.what(), HasSubstr("m.bin: "));
    return error.what();
  }
  return "accepted";
}

std::string refusal(const GgufBytes& file) { return refusal(file.bytes()); }

GgufBytes with(std::vector<uint64_t> dimensions, uint32_t type, const std::string& data) {
  GgufBytes file;
  file.tensors.push_back({"w", std::move(dimensions), type, data});
  return file;
}

TEST(GgufHeader, MetadataHasItsTypes) {
  GgufBytes file;
  file.add("text", "a").add("u32", 7u).add("f32", 0.5f);
  file.add_encoded("i8", 1, "\xff").add_encoded("u64", 10, number(uint64_t{1} << 40, 8));
  file.add_encoded("i64", 11, number(UINT64_MAX, 8)).add_encoded("yes", 7, std::string("\1", 1));
  file.add_encoded("list", 9, number(4, 4) + number(2, 8) + number(3, 4) + number(4, 4));
  file.add_encoded("nested", 9, number(9, 4) + number(1, 8) + number(8, 4) + number(1, 8) + gguf_text("deep"));
  const nlohmann::json found = read(file.bytes()).metadata;
  const nlohmann::json wanted = {{"text", "a"}, {"u32", 7},          {"f32", 0.5},
                                 {"i8", -1},    {"u64", 1ull << 40}, {"i64", -1},
                                 {"yes", true}, {"list", {3, 4}},    {"nested", {{"deep"}}}};
  EXPECT_EQ(found, wanted);
}

TEST(GgufHeader, FloatsAreTheDecimalsThatWereWritten) {
  GgufBytes file;
  file.add("eps", 1e-5f).add("base", 500000.0f).add("scale", 0.1f);
  EXPECT_EQ(read(file.bytes()).metadata, (nlohmann::json{{"eps", 1e-5}, {"base", 500000.0}, {"scale", 0.1}}));
}

TEST(GgufHeader, ListsOfTokenizersAreSkippedWhereNobodyReadsThem) {
  GgufBytes file;
  file.add_encoded("tokenizer.ggml.tokens", 9, number(8, 4) + number(2, 8) + gguf_text("a") + gguf_text("\xff"));
  file.add("tokenizer.ggml.model", "gpt2").add("after", 1u);
  const nlohmann::json found = read(file.bytes(), GgufLists::AllButTokenizer).metadata;
  EXPECT_EQ(found, (nlohmann::json{{"tokenizer.ggml.model", "gpt2"}, {"after", 1}}));
  EXPECT_THAT(refusal(file), AllOf(HasSubstr("tokenizer.ggml.tokens"), HasSubstr("is not UTF-8")));
}

TEST(GgufHeader, TensorsHaveTheirPlacesInTheFile) {
  GgufBytes file;
  file.add("general.alignment", 32u);
  file.tensors = {
      {"a", {3, 2}, 0, std::string(24, 'a')}, {"b", {32, 5}, 8, std::string(170, 'b')}, {"c", {2}, 1, "cccc"}};
  const std::string bytes = file.bytes();
  const GgufHeader header = read(bytes);
  ASSERT_EQ(header.tensors.size(), 3u);
  EXPECT_THAT(header.tensors[0].shape, ElementsAre(2, 3));
  EXPECT_THAT(header.tensors[1].shape, ElementsAre(5, 32));
  EXPECT_EQ(header.tensors[1].type->name, "Q8_0");
  for (size_t i = 0; i < 3; ++i) {
    const GgufTensor& tensor = header.tensors[i];
    EXPECT_EQ(tensor.bytes, static_cast<int64_t>(file.tensors[i].data.size()));
    EXPECT_EQ(bytes.substr(static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.bytes)),
              file.tensors[i].data);
  }
}

TEST(GgufHeader, OtherVersionsAndByteOrdersAreRefusedByName) {
  GgufBytes file;
  file.version = 2;
  EXPECT_EQ(refusal(file), "accepted");
  for (const uint32_t version : {0u, 1u, 4u}) {
    file.version = version;
    EXPECT_THAT(refusal(file), HasSubstr("has version " + std::to_string(version) + " of GGUF, expected 2 or 3"));
  }
  file.version = 3u << 24;
  EXPECT_THAT(refusal(file), HasSubstr("big-endian"));
  file.magic = "GGML";
  EXPECT_THAT(refusal(file), HasSubstr("does not begin with \"GGUF\""));
  EXPECT_THAT(refusal(std::string("GG")), HasSubstr("cut off"));
}

TEST(GgufHeader, TypesThatAreNotReadAreNamedWithTheirTensor) {
  EXPECT_THAT(refusal(with({256}, 16, std::string(66, 'x'))),
              AllOf(HasSubstr("tensor \"w\" has the type IQ2_XXS"), HasSubstr("Q4_K")));
  EXPECT_THAT(refusal(with({64}, 40, std::string(36, 'x'))), HasSubstr("NVFP4"));
  EXPECT_THAT(refusal(with({32}, 4, std::string(18, 'x'))), HasSubstr("number 4"));
}

TEST(GgufHeader, EveryCountIsCheckedBeforeItIsUsed) {
  GgufBytes file;
  for (uint64_t GgufBytes::* count : {&GgufBytes::tensor_count, &GgufBytes::key_count}) {
    GgufBytes changed;
    changed.*count = uint64_t{1} << 60;
    EXPECT_THAT(refusal(changed), HasSubstr("for which the file is too short"));
  }
  file = {};
  file.keys = number(uint64_t{1} << 62, 8);
  file.pairs = 1;
  EXPECT_THAT(refusal(file), HasSubstr("too short"));
  const auto list = [](uint32_t element, uint64_t count, const std::string& rest) {
    GgufBytes made;
    made.add_encoded("k", 9, number(element, 4) + number(count, 8) + rest);
    return made;
  };
  EXPECT_THAT(refusal(list(4, uint64_t{1} << 61, "")), HasSubstr("the length of metadata \"k\""));
  EXPECT_THAT(refusal(list(13, 0, "")), HasSubstr("has the type 13, expected 0 to 12"));
  std::string nested;
  for (int i = 0; i < 8; ++i) nested += number(9, 4) + number(1, 8);
  EXPECT_THAT(refusal(list(9, 1, nested)), HasSubstr("deeper than 4"));
  GgufBytes twice;
  twice.add("k", 1u).add("k", 2u);
  EXPECT_THAT(refusal(twice), HasSubstr("\"k\" twice"));
}

TEST(GgufHeader, ShapesAreCheckedAgainstBlocksAndTheFile) {
  EXPECT_THAT(refusal(with({}, 0, "")), HasSubstr("0 dimensions, expected 1 to 4"));
  EXPECT_THAT(refusal(with({1, 1, 1, 1, 1}, 0, "")), HasSubstr("5 dimensions"));
  EXPECT_THAT(refusal(with({4, 0}, 0, "")), HasSubstr("a dimension of 0"));
  EXPECT_THAT(refusal(with({uint64_t{1} << 40, uint64_t{1} << 40}, 0, "")), HasSubstr("below 2^63"));
  EXPECT_THAT(refusal(with({33, 2}, 8, std::string(68, 'x'))), HasSubstr("whole blocks of 32 for Q8_0"));
  EXPECT_THAT(refusal(with({128}, 12, std::string(144, 'x'))), HasSubstr("whole blocks of 256 for Q4_K"));
  EXPECT_THAT(refusal(with({64, 2}, 8, std::string(100, 'x'))), HasSubstr("the file is cut off"));
  EXPECT_THAT(refusal(with({uint64_t{1} << 62}, 0, "")), HasSubstr("2^63"));
}

TEST(GgufHeader, OffsetsLieApartAndAligned) {
  GgufBytes file = with({4}, 0, std::string(16, 'x'));
  for (const uint64_t offset : {uint64_t{8}, uint64_t{1} << 63, UINT64_MAX - 31}) {
    file.tensors[0].offset = offset;
    EXPECT_THAT(refusal(file), HasSubstr("expected a multiple of 32")) << offset;
  }
  file.tensors[0].offset = uint64_t{1} << 40;
  EXPECT_THAT(refusal(file), HasSubstr("cut off"));
  file.tensors[0].offset = 0;
  file.tensors.push_back({"v", {4}, 0, std::string(16, 'y'), 0});
  EXPECT_THAT(refusal(file), HasSubstr("expected a multiple of 32 from 16 on"));
  file.tensors[1] = {"w", {4}, 0, std::string(16, 'y')};
  EXPECT_THAT(refusal(file), HasSubstr("tensor \"w\" twice"));
  GgufBytes aligned = with({4}, 0, std::string(16, 'x'));
  aligned.add("general.alignment", 24u);
  EXPECT_THAT(refusal(aligned), HasSubstr("expected a power of two"));
}

TEST(GgufHeader, EveryBeginningOfAFileIsRefused) {
  GgufBytes file = with({32, 2}, 8, std::string(68, 'x'));
  file.add("general.architecture", "llama").add_encoded("k", 9, number(8, 4) + number(1, 8) + gguf_text("v"));
  const std::string bytes = file.bytes();
  EXPECT_EQ(refusal(bytes), "accepted");
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_NE(refusal(bytes.substr(0, size)), "accepted") << size;
}

}  // namespace
}  // namespace pm::checkpoint
