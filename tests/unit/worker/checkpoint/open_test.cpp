// Opening folders: which file is taken, what an index may say, what is refused with what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/unit/worker/checkpoint/folder.h"
#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"

namespace pm::checkpoint {
namespace {

using testing::HasSubstr;

const char* const one = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
const char* const other = R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"c":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[1,2]}})";

std::string refusal(const Folder& folder) {
  try {
    Checkpoint::open(folder.path);
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, "ModelUnreadable");
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

TEST(Open, AnIndexJoinsSeveralFiles) {
  Folder folder;
  folder.write("config.json", "{}");
  folder.write_tensors("m-1.safetensors", one, "hi");
  folder.write_tensors("m-2.safetensors", other, "yo");
  folder.write("model.safetensors.index.json", R"({"metadata": {}, "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-2.safetensors"}})");
  const Checkpoint checkpoint = Checkpoint::open(folder.path);
  EXPECT_EQ(checkpoint.files().size(), 2u);
  EXPECT_EQ(checkpoint.find("b")->file, 1);
  EXPECT_EQ(checkpoint.unserved().at("c"), "F8_E5M2");
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

TEST(Open, PickledWeightsAreRefusedWithWhatToDo) {
  Folder folder;
  folder.write("config.json", "{}");
  folder.write("pytorch_model.bin", "PK");
  EXPECT_THAT(refusal(folder), testing::AllOf(HasSubstr("pytorch_model.bin"), HasSubstr("safe_serialization=True")));
}

TEST(Open, BadFilesAreNamed) {
  Folder folder;
  EXPECT_THAT(refusal(folder), HasSubstr("config.json"));
  folder.write("config.json", "{}");
  EXPECT_THAT(refusal(folder), HasSubstr("neither model.safetensors nor"));
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
