// SPDX-License-Identifier: Apache-2.0
// Tests the parsing of untrusted file lists and the selection of files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "worker/base/error.h"
#include "worker/hub/file_digest.h"
#include "worker/hub/listing.h"

namespace pm::hub {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

const std::string commit(40, 'c'), blob(40, 'b'), sha(64, 'a');

json sibling(const std::string& path, int64_t size = 10) {
  json out{{"rfilename", path}, {"size", size}, {"blobId", blob}};
  if (path.ends_with(".safetensors") || path.ends_with(".bin"))
    out["lfs"] = {{"sha256", sha}, {"size", size}, {"pointerSize", 130}};
  return out;
}
Listing listing(const std::vector<std::string>& paths) {
  json answer{{"sha", commit}, {"siblings", json::array()}};
  for (const std::string& path : paths) answer["siblings"].push_back(sibling(path));
  return listing_of(answer.dump(), "https://hub");
}
std::vector<std::string> paths(const std::vector<File>& files) {
  std::vector<std::string> out;
  for (const File& file : files) out.push_back(file.path);
  return out;
}
std::string refusal(const std::function<void()>& action, Reason reason) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, reason);
    return error.what();
  }
  return "no error";
}

TEST(Listing, NamesBytesByTheirChecksums) {
  const Listing made = listing({"config.json", "model.safetensors"});
  EXPECT_EQ(made.commit, commit);
  EXPECT_EQ(made.find("config.json")->name(), blob);
  EXPECT_EQ(made.find("model.safetensors")->name(), sha);
}

TEST(Listing, AnswersThatAreNoneAreRefused) {
  json good{{"sha", commit}, {"siblings", json::array({sibling("model.safetensors")})}};
  const auto refused = [&](const char* pointer, const json& value) {
    json bad = good;
    bad[json::json_pointer(pointer)] = value;
    EXPECT_THAT(refusal([&] { listing_of(bad.dump(), "https://hub"); }, Reason::SourceUnreachable),
                HasSubstr("https://hub"))
        << bad;
  };
  EXPECT_NO_THROW(listing_of(good.dump(), ""));
  for (const json& value : {json("main"), json(1), json(nullptr), json(std::string(40, 'X'))}) refused("/sha", value);
  for (const json& value : {json(nullptr), json("x"), json::object()}) refused("/siblings", value);
  refused("/siblings/0", 7);
  refused("/siblings/0/blobId", "short");
  for (const json& value : {json(-1), json("10"), json(1e30), json(UINT64_MAX), json(nullptr)})
    refused("/siblings/0/lfs/size", value);
  refused("/siblings/0/lfs/sha256", "../../etc/passwd");
  for (const char* text : {"", "[]", "{", "null", "\xff"}) EXPECT_THROW(listing_of(text, ""), Error) << text;
}

TEST(Listing, PathsThatLeadElsewhereAreDropped) {
  const Listing made = listing({"a.json", "../a.json", "/a.json", "b/../a.json", "b//a.json", "./a.json", "b/", "",
                                "a\\b.json", "a\nb.json", "a.json"});
  EXPECT_THAT(paths(made.files), ElementsAre("a.json"));
}

TEST(Selection, TakesOneFormOfTheWeights) {
  EXPECT_THAT(
      paths(weight_files(listing({"pytorch_model.bin", "model.safetensors", "model.fp16.safetensors"}), "m").files),
      ElementsAre("model.safetensors"));
  EXPECT_THAT(paths(weight_files(listing({"pytorch_model.bin", "model.gguf"}), "m").files),
              ElementsAre("pytorch_model.bin"));
  EXPECT_EQ(weight_files(listing({"model.safetensors.index.json", "pytorch_model.bin"}), "m").index->path,
            "model.safetensors.index.json");
  EXPECT_THAT(paths(weight_files(listing({"config.json", "q4.gguf", "mmproj-q4.gguf", "sub/q8.gguf"}), "m").files),
              ElementsAre("q4.gguf"));
  EXPECT_THAT(paths(weight_files(listing({"q4-00002-of-00002.gguf", "q4-00001-of-00002.gguf"}), "m").files),
              ElementsAre("q4-00001-of-00002.gguf", "q4-00002-of-00002.gguf"));
  EXPECT_THAT(refusal([] { weight_files(listing({"q4.gguf", "q8.gguf"}), "m"); }, Reason::ModelUnreadable),
              HasSubstr("has 2 models in GGUF, expected one: q4.gguf, q8.gguf"));
  EXPECT_THAT(refusal([] { weight_files(listing({"config.json", "tf_model.h5"}), "m"); }, Reason::ModelUnreadable),
              HasSubstr("tf_model.h5"));
}

TEST(Selection, AnIndexNamesFilesOfTheRepository) {
  const Listing made = listing({"model.safetensors.index.json", "a.safetensors", "b.safetensors", "sub/c.safetensors"});
  const auto named = [&](const json& map) {
    return indexed_files(made, *made.find("model.safetensors.index.json"), json{{"weight_map", map}}.dump());
  };
  EXPECT_THAT(paths(named({{"x", "b.safetensors"}, {"y", "a.safetensors"}, {"z", "a.safetensors"}})),
              ElementsAre("a.safetensors", "b.safetensors"));
  for (const json& map : {json{{"x", "missing.safetensors"}}, json{{"x", "../a.safetensors"}},
                          json{{"x", "sub/c.safetensors"}}, json{{"x", 1}}, json::object(), json(1)}) {
    EXPECT_THROW(named(map), Error) << map;
  }
}

TEST(Selection, TakesSmallFilesOfTheRootAndModulesOfSentenceTransformers) {
  const std::vector<std::string> all{"config.json",
                                     "merges.txt",
                                     "spiece.model",
                                     "source.spm",
                                     "vocab.pkl",
                                     "prophetnet.tokenizer",
                                     "training_state.pkl",
                                     "sparse_linear.pt",
                                     "model.pt",
                                     "chat_template.jinja",
                                     "README.md",
                                     "model.safetensors.index.json",
                                     "x.py",
                                     "1_Pooling/config.json",
                                     "onnx/model.onnx",
                                     "additional_chat_templates/a.jinja"};
  EXPECT_THAT(paths(small_files(listing(all))),
              UnorderedElementsAre("config.json", "merges.txt", "spiece.model", "source.spm", "chat_template.jinja",
                                   "vocab.pkl", "prophetnet.tokenizer", "sparse_linear.pt",
                                   "additional_chat_templates/a.jinja"));
  std::vector<std::string> more = all;
  more.insert(more.end(), {"modules.json", "2_Dense/model.safetensors", "2_Dense/pytorch_model.bin",
                           "3_Dense/pytorch_model.bin", "onnx/model.safetensors"});
  const auto found = paths(small_files(listing(more)));
  EXPECT_THAT(found, testing::IsSupersetOf(
                         {"1_Pooling/config.json", "2_Dense/model.safetensors", "3_Dense/pytorch_model.bin"}));
  EXPECT_THAT(found, testing::Not(testing::Contains("2_Dense/pytorch_model.bin")));
  EXPECT_THAT(found, testing::Not(testing::Contains("onnx/model.safetensors")));
}

TEST(Digests, AreGitsAndSha256s) {
  base::Digest git = file_digest({.path = "a", .size = 6, .blob = blob});
  git.update("hel");
  git.update("lo\n");
  EXPECT_EQ(base::to_hex(git.finish()), "ce013625030ba8dba906f756967f9e9ca394464a")
      << "echo hello | git hash-object --stdin";
  base::Digest large = file_digest({.path = "a", .size = 3, .sha256 = sha, .blob = blob});
  large.update("abc");
  EXPECT_EQ(base::to_hex(large.finish()), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
      << "FIPS 180-2";
}

}  // namespace
}  // namespace pm::hub
