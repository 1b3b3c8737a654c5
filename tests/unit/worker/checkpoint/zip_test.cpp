// SPDX-License-Identifier: Apache-2.0
// Tests the zip reader: it finds what torch.save writes and refuses everything else before it reads outside of the
// file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/unit/worker/checkpoint/archive.h"
#include "worker/base/error.h"
#include "worker/checkpoint/zip.h"

namespace pm::checkpoint {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& bytes) {
  try {
    read_zip(in_memory(bytes));
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

Archive two() { return Archive().add("m/a", "hello").add("m/b", "world!"); }

TEST(Zip, RecordsAreFoundWithTheirPlaces) {
  for (const bool zip64 : {true, false})
    for (const bool wide : {true, false}) {
      Archive archive = two();
      archive.zip64 = zip64;
      archive.records[1].wide = wide;
      const std::string bytes = archive.bytes();
      const auto records = read_zip(in_memory(bytes));
      ASSERT_EQ(records.size(), 2u);
      EXPECT_EQ(records[1].name, "m/b");
      EXPECT_EQ(bytes.substr(static_cast<size_t>(records[1].offset), static_cast<size_t>(records[1].bytes)), "world!");
    }
}

TEST(Zip, OnlyStoredPlainRecordsAreRead) {
  Archive archive = two();
  archive.records[0].method = 8;
  EXPECT_THAT(refusal(archive.bytes()), HasSubstr("\"m/a\" is compressed (method 8)"));
  archive = two();
  archive.records[0].flags = 1;
  EXPECT_THAT(refusal(archive.bytes()), HasSubstr("encrypted"));
  archive = two();
  archive.comment = "x";
  EXPECT_THAT(refusal(archive.bytes()), HasSubstr("without comment"));
}

TEST(Zip, NamesThatDisagreeOrStandTwiceAreRefused) {
  Archive archive = two();
  archive.records[0].local_name = "m/x";
  EXPECT_THAT(refusal(archive.bytes()), HasSubstr("contradicts the directory"));
  archive = two();
  archive.records[1].name = "m/a";
  EXPECT_THAT(refusal(archive.bytes()), HasSubstr("\"m/a\" twice"));
  archive.records[1].name = "m/\n";
  EXPECT_THAT(refusal(archive.bytes()), HasSubstr("control character"));
}

TEST(Zip, SizesAndPlacesThatLieAreRefused) {
  for (const bool wide : {true, false}) {
    Archive archive = two();
    archive.records[0].wide = wide;
    archive.records[0].claimed = wide ? uint64_t{1} << 62 : 0xfffffff0;
    EXPECT_THAT(refusal(archive.bytes()), HasSubstr("reaches past"));
    archive.records[0].claimed = 20;
    EXPECT_THAT(refusal(archive.bytes()), HasSubstr("records that overlap"));
    archive.records[0].claimed = UINT64_MAX;
    archive.records[0].header = wide ? UINT64_MAX - 1 : 0xfffffff0;
    EXPECT_THAT(refusal(archive.bytes()), HasSubstr("outside of the file"));
    archive.records[0].header = 1;
    EXPECT_THAT(refusal(archive.bytes()), HasSubstr("local header"));
  }
  for (uint64_t entries : {uint64_t{0}, uint64_t{1}, uint64_t{3}, uint64_t{0xfffe}}) {
    Archive archive = two();
    archive.entries = entries;
    EXPECT_NE(refusal(archive.bytes()), "accepted") << entries;
    archive.zip64 = false;
    EXPECT_NE(refusal(archive.bytes()), "accepted") << entries;
  }
  for (uint64_t directory : {uint64_t{0}, uint64_t{7}, uint64_t{0xfffffff0}}) {
    Archive archive = two();
    archive.directory = directory;
    EXPECT_THAT(refusal(archive.bytes()), HasSubstr("directory at byte")) << directory;
  }
}

TEST(Zip, EveryCutOffFileIsRefused) {
  const std::string bytes = two().bytes();
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_NE(refusal(bytes.substr(0, size)), "accepted") << size;
}

TEST(Zip, ChangedBytesNeverLeadOutOfTheFile) {
  const std::string good = two().bytes();
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (int change = 0; change < 3; ++change)
      bytes[random() % bytes.size()] = static_cast<char>(random() % 3 ? 0xff : random());
    refusal(bytes);  // in_memory throws std::logic_error for a read outside
  }
}

}  // namespace
}  // namespace pm::checkpoint
