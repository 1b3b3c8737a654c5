// SPDX-License-Identifier: Apache-2.0
// Tests opening of checkpoint folders: the choice of files, the rules for an index, and refusals that say what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/unit/worker/checkpoint/archive.h"
#include "tests/unit/worker/checkpoint/folder.h"
#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"

namespace pm::checkpoint {
namespace {

using testing::HasSubstr;

const char* const one = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
const char* const other =
    R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"c":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[1,2]}})";

std::string refusal(const Folder& folder) {
  try {
    Checkpoint::open(folder.path);
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::ModelUnreadable);
    return error.what();
  }
  return "accepted";
}

TEST(Open, ASingleFileIsRead) {
  Folder folder;
  folder.write("config.json", R"({"model_type": "x"})");
  folder.write_tensors("model.safetensors", one, "hi");
  const Checkpoint checkpoint = Checkpoint::open(folder.path);
  EXPECT_EQ(checkpoint.config()["model_type"], "x");
  ASSERT_NE(checkpoint.find("a"), nullptr);
  EXPECT_EQ(checkpoint.find("b"), nullptr);
}

TEST(Open, NumbersThatPythonWritesAndJsonLacksAreReadByTheirNames) {
  Folder folder;
  folder.write("config.json",
               R"({"limit": [0.0, Infinity, -Infinity, NaN], "text": "a \"NaN\" of \\", "Infinity": [Infinity]})");
  folder.write_tensors("model.safetensors", one, "hi");
  const nlohmann::json config = Checkpoint::open(folder.path).config();
  const auto number = [](const char* name) { return nlohmann::json{{"__float__", name}}; };
  EXPECT_EQ(config["limit"], nlohmann::json({0.0, number("Infinity"), number("-Infinity"), number("NaN")}));
  EXPECT_EQ(config["text"], "a \"NaN\" of \\");
  EXPECT_EQ(config["Infinity"], nlohmann::json::array({number("Infinity")}));
}

TEST(Open, WeightsThatAreNotInTheFolderAreReadWhereTheyAre) {
  Folder folder, far;
  folder.write("config.json", "{}");
  folder.write("model.safetensors", "");
  far.write_tensors("far", one, "hi");
  std::ifstream in(far.path / "far", std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  bool reachable = true;
  const Checkpoint checkpoint = Checkpoint::open(folder.path, [&](const std::string& file) {
    EXPECT_EQ(file, "model.safetensors");
    return RandomAccessFile{.name = "far/" + file,
                            .size = static_cast<int64_t>(whole.size()),
                            .read = [&](int64_t offset, std::span<char> out) {
                              if (!reachable) throw Error(Reason::SourceUnreachable, "far is not there any more");
                              whole.copy(out.data(), out.size(), static_cast<size_t>(offset));
                            }};
  });
  const TensorInfo& tensor = *checkpoint.find("a");
  const Strip strip{0, 1, 2, 2};
  std::byte bytes[2];
  checkpoint.read(tensor, {&strip, 1}, bytes);
  EXPECT_EQ(std::string(reinterpret_cast<char*>(bytes), 2), "hi");
  reachable = false;
  try {
    checkpoint.read(tensor, {&strip, 1}, bytes);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::SourceUnreachable);
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("\"a\""), HasSubstr("far is not there any more")));
  }
}

TEST(Open, AnIndexJoinsSeveralFiles) {
  Folder folder;
  folder.write("config.json", "{}");
  folder.write_tensors("m-1.safetensors", one, "hi");
  folder.write_tensors("m-2.safetensors", other, "yo");
  folder.write(
      "model.safetensors.index.json",
      R"({"metadata": {}, "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-2.safetensors"}})");
  const Checkpoint checkpoint = Checkpoint::open(folder.path);
  EXPECT_EQ(checkpoint.files().size(), 2u);
  EXPECT_EQ(checkpoint.find("b")->file, 1);
  EXPECT_EQ(checkpoint.unsupported().at("c").type, "F8_E5M2");
  std::byte byte{};
  const Strip strip{0, 1, 1, 1};
  checkpoint.read(*checkpoint.find("b"), {&strip, 1}, {&byte, 1});
  EXPECT_EQ(byte, std::byte{'y'});
}

TEST(Open, AnIndexMayNotPointOutOfItsFolder) {
  for (const char* path : {"../x.safetensors", "..", "/etc/passwd", "a/b.safetensors", ""}) {
    Folder folder;
    folder.write("config.json", "{}");
    folder.write("model.safetensors.index.json", nlohmann::json{{"weight_map", {{"a", path}}}}.dump());
    EXPECT_THAT(refusal(folder), HasSubstr("expected the name of a file in the same folder")) << path;
  }
}

TEST(Open, ANameThatIsNotWhereTheIndexSaysIsNamed) {
  Folder folder;
  folder.write("config.json", "{}");
  folder.write_tensors("m.safetensors", one, "hi");
  folder.write("model.safetensors.index.json", R"({"weight_map": {"a": "m.safetensors", "z": "m.safetensors"}})");
  EXPECT_THAT(refusal(folder), HasSubstr("\"z\" is in m.safetensors, which does not have it"));
}

TEST(Open, IndexKeysMayNotStandTwice) {
  Folder folder;
  folder.write("config.json", "{}");
  folder.write("model.safetensors.index.json", R"({"weight_map": {"a": "m", "a": "n"}})");
  EXPECT_THAT(refusal(folder), HasSubstr("\"a\" twice"));
}

TEST(Open, SafetensorsStandBeforePytorchFilesAndSingleFilesBeforeAnIndex) {
  Folder folder;
  const auto bin = [](const std::string& name) {
    return torch_archive(state_dict({{name, "0", 1, 0, {1}, {1}, "ByteStorage"}}), {{"0", "x"}}).bytes();
  };
  folder.write("config.json", "{}");
  folder.write("shard.bin", bin("shard"));
  folder.write("pytorch_model.bin.index.json", R"({"weight_map": {"shard": "shard.bin"}})");
  EXPECT_NE(Checkpoint::open(folder.path).find("shard"), nullptr);
  folder.write("pytorch_model.bin", bin("single"));
  EXPECT_NE(Checkpoint::open(folder.path).find("single"), nullptr);
  folder.write_tensors("m.safetensors", one, "hi");
  folder.write("model.safetensors.index.json", R"({"weight_map": {"a": "m.safetensors"}})");
  EXPECT_NE(Checkpoint::open(folder.path).find("a"), nullptr);
  folder.write_tensors("model.safetensors", R"({"z":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "hi");
  EXPECT_NE(Checkpoint::open(folder.path).find("z"), nullptr);
}

TEST(Open, AMissingShardIsNamed) {
  Folder folder;
  folder.write("config.json", "{}");
  folder.write_tensors("m-1.safetensors", one, "hi");
  folder.write("model.safetensors.index.json",
               R"({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-2.safetensors"}})");
  EXPECT_THAT(refusal(folder),
              testing::AllOf(HasSubstr("\"b\" and 1 more are in m-2.safetensors"), HasSubstr("copy all 2 files")));
}

TEST(Open, OtherFormatsAreRefusedByNameWithWhatToDo) {
  const std::vector<std::array<const char*, 3>> cases = {
      {"tf_model.h5", "TensorFlow", "from_tf=True"},
      {"flax_model.msgpack", "Flax", "from_flax=True"},
      {"adapter_model.safetensors", "adapter", "merge_and_unload"},
      {"consolidated.00.pth", "own code", "weights_to_hf"},
      {"weights.safetensors", "name a single file", "save_pretrained"}};
  for (const auto& [name, what, way_out] : cases) {
    Folder folder;
    folder.write(name, "x");
    if (std::string_view(name) == "weights.safetensors")
      EXPECT_THAT(refusal(folder), HasSubstr("config.json"));
    else
      EXPECT_THAT(refusal(folder), testing::AllOf(HasSubstr(name), HasSubstr(what), HasSubstr(way_out)));
    folder.write("config.json", "{}");
    EXPECT_THAT(refusal(folder), testing::AllOf(HasSubstr(name), HasSubstr(what), HasSubstr(way_out)));
  }
}

TEST(Open, QuantizedWeightsAreRefusedByTheirNames) {
  for (const char* name : {"h.0.qweight", "h.0.qzeros", "h.0.weight.absmax", "h.0.weight.quant_state.bitsandbytes__nf4",
                           "h.0.SCB", "h.0.weight_packed"}) {
    Folder folder;
    folder.write("config.json", "{}");
    const nlohmann::json header = {{name, {{"dtype", "U8"}, {"shape", {1}}, {"data_offsets", {0, 1}}}}};
    folder.write_tensors("model.safetensors", header.dump(), "x");
    EXPECT_THAT(refusal(folder), testing::AllOf(HasSubstr("quantized checkpoint"), HasSubstr(name)));
    folder.write("config.json", R"({"quantization_config": {"quant_method": "hqq"}})");
    EXPECT_THAT(refusal(folder), testing::AllOf(HasSubstr("quantization_config"), HasSubstr("hqq")));
  }
}

TEST(Open, BadFilesAreNamed) {
  Folder folder;
  EXPECT_THAT(refusal(folder), HasSubstr("config.json"));
  folder.write("config.json", "{}");
  EXPECT_THAT(refusal(folder), HasSubstr("no weights"));
  folder.write("model.safetensors", "1234567");
  EXPECT_THAT(refusal(folder), HasSubstr("7 bytes, too few"));
  folder.write("model.safetensors", std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10));
  EXPECT_THAT(refusal(folder), HasSubstr("at most 100000000"));
  folder.write("model.safetensors", std::string("\x09\0\0\0\0\0\0\0{}", 10));
  EXPECT_THAT(refusal(folder), HasSubstr("only 2 follow"));
  folder.write("config.json", "[]");
  EXPECT_THAT(refusal(folder), HasSubstr("not a JSON object"));
  folder.write("config.json", "{\"a\": ");
  EXPECT_THAT(refusal(folder), HasSubstr("not JSON"));
}

TEST(Open, AFifoDoesNotBlock) {
  Folder folder;
  folder.write("config.json", "{}");
  ASSERT_EQ(::mkfifo((folder.path / "model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(refusal(folder), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace pm::checkpoint
