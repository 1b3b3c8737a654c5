// SPDX-License-Identifier: Apache-2.0
// The files of an index of passages: which ones are found, what their lines and tensors may hold.
#include "worker/checkpoint/passage_index.h"

#include <gmock/gmock.h>

#include "tests/unit/worker/checkpoint/archive.h"
#include "tests/unit/worker/checkpoint/folder.h"
#include "worker/base/error.h"

namespace pm::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::ModelUnreadable);
    return error.what();
  }
  return "";
}

Passages passages_of(const std::vector<std::string>& files) {
  std::vector<RandomAccessFile> all;
  for (const std::string& one : files) all.push_back(in_memory(one));
  return Passages(std::move(all));
}

std::string line(const std::string& title, const std::string& text) {
  return R"({"title": ")" + title + R"(", "text": ")" + text + "\"}";
}

TEST(PassageIndex, ShardsAreFoundInTheirOrder) {
  const Folder folder;
  EXPECT_THAT(find_shards(folder.path, "passages", ".jsonl"), ElementsAre());
  for (const char* name : {"passages-00002-of-00002.jsonl", "passages-00001-of-00002.jsonl", "passages-1-of-2.jsonl",
                           "passages-0000x-of-00002.jsonl", "other-00001-of-00003.jsonl"})
    folder.write(name, "");
  EXPECT_THAT(find_shards(folder.path, "passages", ".jsonl"),
              ElementsAre("passages-00001-of-00002.jsonl", "passages-00002-of-00002.jsonl"));
}

TEST(PassageIndex, AWholeFileBesideShardsIsRefused) {
  const Folder folder;
  folder.write("passages.jsonl", "");
  EXPECT_THAT(find_shards(folder.path, "passages", ".jsonl"), ElementsAre("passages.jsonl"));
  folder.write("passages-00001-of-00001.jsonl", "");
  EXPECT_THAT(refusal([&] { find_shards(folder.path, "passages", ".jsonl"); }), HasSubstr("keep one of both"));
}

TEST(PassageIndex, MissingShardsAndShardsOfTwoCountsAreRefused) {
  const Folder folder;
  folder.write("passages-00003-of-00003.jsonl", "");
  EXPECT_THAT(refusal([&] { find_shards(folder.path, "passages", ".jsonl"); }), HasSubstr("number 1 is missing"));
  folder.write("passages-00001-of-00002.jsonl", "");
  EXPECT_THAT(refusal([&] { find_shards(folder.path, "passages", ".jsonl"); }), HasSubstr("keep those of one"));
}

TEST(PassageIndex, PassagesAreNumberedOverAllFiles) {
  const Passages passages = passages_of({line("a", "one") + "\n" + line("b", "two") + "\n", line("c", "three")});
  EXPECT_EQ(passages.size(), 3);
  EXPECT_EQ(passages.read(0), (Passage{"a", "one"}));
  EXPECT_EQ(passages.read(1), (Passage{"b", "two"}));
  EXPECT_EQ(passages.read(2), (Passage{"c", "three"})) << "a last line needs no newline";
  EXPECT_THROW(passages.read(3), std::out_of_range);
  EXPECT_THROW(passages.read(-1), std::out_of_range);
}

TEST(PassageIndex, LinesOverTheBordersOfBlocksAreRead) {
  std::string file;
  for (int i = 0; i < 5; ++i) file += line(std::to_string(i), std::string(700'000, 'x')) + "\n";
  const Passages passages = passages_of({file});
  ASSERT_EQ(passages.size(), 5);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(passages.read(i).title, std::to_string(i));
}

TEST(PassageIndex, BrokenLinesAreRefusedWithTheirNumber) {
  const std::string good = line("a", "b") + "\n";
  EXPECT_THAT(refusal([&] { passages_of({good + "[]\n"}); }), HasSubstr("line 2 is not a JSON object"));
  EXPECT_THAT(refusal([&] { passages_of({good + "\n" + good}); }), HasSubstr("line 2 is not a JSON object"));
  EXPECT_THAT(refusal([&] { passages_of({"{\"title\": \"\xff\", \"text\": \"\"}"}); }), HasSubstr("in UTF-8"));
  EXPECT_THAT(refusal([&] { passages_of({R"({"title": "a"})"}); }), HasSubstr("has no string \"text\""));
  EXPECT_THAT(refusal([&] { passages_of({line("a", std::string(1 << 20, 'x'))}); }), HasSubstr("more than 1 MiB"));
  const std::string deep = std::string(40, '[') + std::string(40, ']');
  EXPECT_THAT(refusal([&] { passages_of({R"({"title": "a", "text": "b", "more": )" + deep + "}"}); }),
              HasSubstr("nested deeper than 16"));
}

TEST(PassageIndex, FurtherKeysOfALineAreIgnored) {
  EXPECT_EQ(parse_passage(R"({"id": 7, "title": "a", "text": "b"})", "here"), (Passage{"a", "b"}));
}

/// A file of tensors: length, header, data.
std::string tensors(const std::string& header, size_t bytes) {
  return number(header.size(), 8) + header + std::string(bytes, '\0');
}

TEST(PassageIndex, AFileOfEmbeddingsHasOneMatrixOfFloats) {
  const TensorInfo info =
      read_embeddings(in_memory(tensors(R"({"embeddings":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}})", 12)));
  EXPECT_THAT(info.shape, ElementsAre(2, 3));
  EXPECT_EQ(info.dtype, DType::BF16);
  const auto refused = [](const std::string& header, size_t bytes) {
    return refusal([&] { read_embeddings(in_memory(tensors(header, bytes))); });
  };
  EXPECT_THAT(refused("{}", 0), HasSubstr("has no tensor \"embeddings\""));
  EXPECT_THAT(refused(R"({"e":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}})", 4), HasSubstr("the tensor \"e\""));
  EXPECT_THAT(refused(R"({"embeddings":{"dtype":"I64","shape":[1,1],"data_offsets":[0,8]}})", 8),
              HasSubstr("expected F32, F16 or BF16"));
  EXPECT_THAT(refused(R"({"embeddings":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]}})", 0),
              HasSubstr("has the shape [0, 4]"));
  EXPECT_THAT(refused(R"({"embeddings":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", 16),
              HasSubstr("has the shape [4]"));
}

}  // namespace
}  // namespace pm::checkpoint
