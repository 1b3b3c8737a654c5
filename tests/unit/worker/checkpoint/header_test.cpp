// SPDX-License-Identifier: Apache-2.0
// Hostile safetensors headers: each is refused with a message that names the fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"

namespace pm::checkpoint {
namespace {

using testing::HasSubstr;

struct Hostile {
  const char *name, *header;
  int64_t data;
  const char* message;
};

std::string refusal(const std::string& header, int64_t data) {
  try {
    parse_header(header, 8 + static_cast<int64_t>(header.size()) + data, "f.safetensors");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::Model);
    EXPECT_EQ(error.reason, Reason::ModelUnreadable);
    return error.what();
  }
  return "accepted";
}

class HostileHeader : public testing::TestWithParam<Hostile> {};

TEST_P(HostileHeader, IsRefusedByName) {
  const std::string message = refusal(GetParam().header, GetParam().data);
  EXPECT_THAT(message, HasSubstr(GetParam().message));
  EXPECT_THAT(message, HasSubstr("f.safetensors"));
}

const Hostile table[] = {
    {"Empty", "", 0, "does not begin with '{'"},
    {"List", "[]", 0, "does not begin with '{'"},
    {"SpaceFirst", " {}", 0, "does not begin with '{'"},
    {"CutJson", R"({"a":)", 0, "not JSON"},
    {"TwoDocuments", "{}{}", 0, "not JSON"},
    {"BadUtf8", "{\"\xff\":{}}", 0, "not JSON"},
    {"ControlCharacter", R"({"a\u0000":1})", 0, "control character"},
    {"NumberForTensor", R"({"a":1})", 0, "expected an object"},
    {"DuplicateTensor",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
     "\"a\" twice"},
    {"DuplicateKey", R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "\"dtype\" twice"},
    {"DuplicateMetadata", R"({"__metadata__":{"k":"1","k":"2"}})", 0, "\"k\" twice"},
    {"UnknownKey", R"({"a":{"dtype":"U8","shape":[1],"offset":[0,1]}})", 1, "\"offset\""},
    {"MissingKey", R"({"a":{"dtype":"U8","shape":[1]}})", 0, "lacks one of"},
    {"MetadataNumber", R"({"__metadata__":{"k":1}})", 0, "expected a string"},
    {"MetadataNested", R"({"__metadata__":{"k":{}}})", 0, "expected a string"},
    {"MetadataText", R"({"__metadata__":"x"})", 0, "expected an object"},
    {"Nested", R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", 1, "a list"},
    {"NegativeShape", R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, "-1"},
    {"FloatShape", R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1, "1.0"},
    {"TextShape", R"({"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})", 1, "the string"},
    {"HugeNumber", R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}})", 1, "2^63"},
    {"OverflowingShape", R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]}})", 0,
     "larger than 2^63"},
    {"OverflowBeforeZero", R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0,
     "larger than 2^63"},
    {"ManyDimensions",
     R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})",
     1, "64 dimensions"},
    {"OneOffset", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, "1 data_offsets"},
    {"ThreeOffsets", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", 1, "3 data_offsets"},
    {"EndBeforeBegin",
     R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1,
     "expected it to begin at 0"},
    {"Gap",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})", 3,
     "begin at 1"},
    {"Overlap",
     R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3,
     "begin at 2"},
    {"FirstNotAtZero", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2, "begin at 0"},
    {"SizeTooSmall", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "needs 8"},
    {"FileCutOff", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7, "cut off"},
    {"BytesOfNobody", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9, "no tensor owns"},
    {"UnknownType", R"({"a":{"dtype":"X9","shape":[1],"data_offsets":[0,1]}})", 1, "X9"},
    {"HalfByte", R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1, "whole byte"},
    {"NullTensor", R"({"a":null})", 0, "null"},
    {"BooleanType", R"({"a":{"dtype":true,"shape":[1],"data_offsets":[0,1]}})", 1, "a boolean"},
};

INSTANTIATE_TEST_SUITE_P(Table, HostileHeader, testing::ValuesIn(table),
                         [](const auto& info) { return std::string(info.param.name); });

Header accepted(const std::string& header, int64_t data) {
  return parse_header(header, 8 + static_cast<int64_t>(header.size()) + data, "f");
}

TEST(Header, AnEmptyObjectIsAnEmptyTable) { EXPECT_TRUE(accepted("{}   ", 0).tensors.empty()); }

TEST(Header, TensorsAreFoundWhateverTheirOrderInTheText) {
  const std::string text =
      R"({"b":{"dtype":"F16","shape":[2,3],"data_offsets":[4,16]},"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})";
  const Header header = accepted(text, 16);
  ASSERT_EQ(header.tensors.size(), 2u);
  const int64_t data = 8 + static_cast<int64_t>(text.size());
  EXPECT_EQ(header.tensors.at("a").offset, data);
  EXPECT_EQ(header.tensors.at("b").offset, data + 4);
  EXPECT_EQ(header.tensors.at("b").dtype, DType::F16);
  EXPECT_EQ(header.tensors.at("b").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(header.tensors.at("b").bytes, 12);
}

TEST(Header, TensorsWithoutElementsAreAllowed) {
  EXPECT_EQ(accepted(R"({"a":{"dtype":"F32","shape":[0,5],"data_offsets":[0,0]}})", 0).tensors.at("a").bytes, 0);
}

TEST(Header, UnsupportedTypesAreListedApart) {
  const Header header = accepted(
      R"({"a":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})",
      4);
  EXPECT_EQ(header.unsupported.at("a").type, "F8_E4M3");
  EXPECT_EQ(header.tensors.size(), 1u);
}

TEST(Header, AZeroByteDoesNotEndIt) { EXPECT_THAT(refusal(std::string("{}\0garbage", 10), 0), HasSubstr("zero byte")); }

TEST(Header, DeepNestingNeedsNoStack) {
  EXPECT_THAT(refusal(R"({"a":)" + std::string(1000000, '['), 0), HasSubstr("a list"));
}

}  // namespace
}  // namespace pm::checkpoint
