// SPDX-License-Identifier: Apache-2.0
// Tests the tensor table of a .bin file: which pickles are read, which are refused by name, and that every claim about
// a storage is checked.
#include "worker/checkpoint/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/unit/worker/checkpoint/archive.h"
#include "worker/base/error.h"

namespace pm::checkpoint {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string refusal(const Archive& archive) {
  try {
    read_torch_file(in_memory(archive.bytes()));
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::ModelUnreadable);
    return error.what();
  }
  return "accepted";
}

const std::string six_floats(24, 'f');
std::string of(const Pickled& tensor) { return refusal(torch_archive(state_dict({tensor}), {{"0", six_floats}})); }
std::string of_pickle(const std::string& operations) {
  return refusal(torch_archive(pickle(operations), {{"0", six_floats}}));
}

TEST(TorchFile, TensorsAreFoundInTheirStorages) {
  const std::string data = "abcdefghijklmnopqrstuvwx";
  const Archive archive = torch_archive(state_dict({{"w", "0", 6, 0, {2, 3}, {3, 1}},
                                                    {"row", "0", 6, 3, {3}, {1}},
                                                    {"t", "0", 6, 0, {3, 2}, {1, 3}},
                                                    {"h", "1", 2, 0, {2}, {1}, "HalfStorage"},
                                                    {"scalar", "0", 6, 5, {}, {}},
                                                    {"none", "0", 6, 0, {0, 9}, {9, 1}},
                                                    {"one", "0", 6, 0, {1, 6}, {77, 1}},
                                                    {"c", "2", 1, 0, {1}, {1}, "ComplexFloatStorage"}}),
                                        {{"0", data}, {"1", "hihi"}, {"2", "12345678"}});
  const std::string bytes = archive.bytes();
  const Header header = read_torch_file(in_memory(bytes));
  const auto at = [&](const char* name) {
    return bytes.substr(static_cast<size_t>(header.tensors.at(name).offset),
                        static_cast<size_t>(header.tensors.at(name).bytes));
  };
  EXPECT_EQ(at("w"), data);
  EXPECT_EQ(at("row"), data.substr(12));
  EXPECT_EQ(at("h"), "hihi");
  EXPECT_EQ(header.tensors.at("h").dtype, DType::F16);
  EXPECT_EQ(at("scalar"), data.substr(20));
  EXPECT_EQ(header.tensors.at("none").bytes, 0);
  EXPECT_THAT(header.tensors.at("one").strides, IsEmpty()) << "the step of a dimension of one element means nothing";
  EXPECT_THAT(header.tensors.at("t").strides, ElementsAre(1, 3));
  EXPECT_EQ(header.tensors.at("t").offset, header.tensors.at("w").offset) << "tensors of one storage share its place";
  EXPECT_EQ(header.unsupported.at("c").type, "C64");
}

TEST(TorchFile, OnlyTheNamesOfPlainTensorsAreKnown) {
  EXPECT_THAT(of_pickle(global("os", "system") + text("true") + "\x85R"),
              AllOf(HasSubstr("os.system"), HasSubstr("not loaded"), HasSubstr("save_pretrained")));
  EXPECT_THAT(of_pickle(text("builtins") + text("eval") + "\x93"), HasSubstr("builtins.eval"));
  EXPECT_THAT(of_pickle(global("torch._utils", "_rebuild_tensor_v3")), HasSubstr("_rebuild_tensor_v3"));
  EXPECT_THAT(of_pickle(global("torch", "QInt8Storage")), HasSubstr("torch.QInt8Storage"));
  EXPECT_THAT(of_pickle(global("o\x01s", "x")), HasSubstr("o?s.x"));
  for (const char operation : std::string("iodoIPS\x81\x82\x92\x8f\x90\x91\x97\x98g0124dlVFLT")) {
    EXPECT_THAT(of_pickle(std::string(1, operation)), HasSubstr("which torch.save does not use")) << operation;
  }
}

TEST(TorchFile, OrderedDictsWithMetadataAndPlainDictsAreStateDicts) {
  const std::string dict = state_dict({{"w", "0", 6, 0, {6}, {1}}});
  const std::string body = dict.substr(2, dict.size() - 3);
  EXPECT_EQ(of_pickle(body + "}" + text("_metadata") + "}sb"), "accepted");
  EXPECT_THAT(of_pickle(body + "}" + text("__class__") + "}sb"), HasSubstr("__class__"));
  EXPECT_EQ(of_pickle("}"), "accepted");
  EXPECT_EQ(of_pickle(global("collections", "OrderedDict") + "]\x85R"), "accepted");
}

TEST(TorchFile, WhatIsNoStateDictIsNamed) {
  EXPECT_THAT(of_pickle("N"), HasSubstr("holds None"));
  EXPECT_THAT(of_pickle("}" + text("epoch") + "K\x05s"), HasSubstr("a number under \"epoch\""));
  EXPECT_THAT(of_pickle("}" + text("state_dict") + "}s"),
              AllOf(HasSubstr("\"state_dict\""), HasSubstr("training checkpoint"), HasSubstr("torch.load")));
  EXPECT_THAT(of_pickle("}K\x05Ns"), HasSubstr("where a string is expected"));
  const std::string tensor = state_dict({{"w", "0", 6, 0, {6}, {1}}, {"w", "0", 6, 0, {6}, {1}}});
  EXPECT_THAT(refusal(torch_archive(tensor, {{"0", six_floats}})), HasSubstr("\"w\" twice"));
}

TEST(TorchFile, TensorsThatReachPastTheirStorageAreRefused) {
  EXPECT_THAT(of({"w", "0", 6, 1, {2, 3}, {3, 1}}), HasSubstr("reaches past the 6 elements"));
  EXPECT_THAT(of({"w", "0", 7, 0, {7}, {1}}), HasSubstr("its record has 24 bytes"));
  EXPECT_THAT(of({"w", "0", 5, 0, {5}, {1}}), HasSubstr("its record has 24 bytes"));
  EXPECT_THAT(of({"w", "9", 6, 0, {6}, {1}}), HasSubstr("storage \"9\", which the archive does not have"));
  EXPECT_THAT(of({"w", "0", 6, 0, {2, 2}, {5, 1}}), HasSubstr("reaches past"));
  EXPECT_THAT(of({"w", "0", uint64_t{1} << 62, 0, {1}, {1}}), HasSubstr("its record has"));
  EXPECT_THAT(of({"w", "0", 6, INT64_MAX, {2}, {1}}), HasSubstr("reaches past"));
  EXPECT_THAT(of({"w", "0", 6, 0, {3}, {uint64_t{1} << 62}}), HasSubstr("reaches past 2^63"));
  EXPECT_THAT(of({"w", "0", 6, 0, {uint64_t{1} << 40, uint64_t{1} << 40}, {uint64_t{1} << 40, 1}}),
              HasSubstr("more than 2^63"));
  EXPECT_THAT(of({"w", "0", 6, 0, {UINT64_MAX}, {1}}), HasSubstr("a number below 0"));
  EXPECT_THAT(of({"w", "0", 6, 0, {2, 3}, {1}}), HasSubstr("2 dimensions and 1 strides"));
}

TEST(TorchFile, ViewsOverTheirOwnElementsAreRefusedWithWhatToDo) {
  for (const Pickled& view : {Pickled{"w", "0", 6, 0, {uint64_t{1} << 40, 6}, {0, 1}},
                              Pickled{"w", "0", 6, 0, {3, 3}, {1, 1}}, Pickled{"w", "0", 6, 0, {2, 2}, {1, 1}}}) {
    EXPECT_THAT(of(view), AllOf(HasSubstr("elements overlap"), HasSubstr("contiguous()")));
  }
}

TEST(TorchFile, OlderAndOtherFormsAreRefusedByName) {
  const auto whole = [](const std::string& bytes) {
    try {
      read_torch_file(in_memory(bytes));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(whole(std::string("\x80\x02\x8a\nl\xfc\x9c"
                                "F\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.",
                                20)),
              AllOf(HasSubstr("before PyTorch 1.6"), HasSubstr("save_pretrained")));
  std::string tar(1024, '\0');
  tar.replace(257, 5, "ustar");
  EXPECT_THAT(whole(tar), HasSubstr("the tar form"));
  EXPECT_THAT(whole(""), HasSubstr("is not an archive"));
  EXPECT_THAT(whole("PK\x03\x04"), HasSubstr("too few for an archive"));
  Archive archive = torch_archive(state_dict({}), {});
  archive.add("m/constants.pkl", "x");
  EXPECT_THAT(refusal(archive), HasSubstr("TorchScript"));
  archive = torch_archive(state_dict({}), {});
  archive.records[1].data = "big";
  EXPECT_THAT(refusal(archive), HasSubstr("big-endian"));
  archive = torch_archive(state_dict({}), {});
  archive.add("n/data/0", "x");
  EXPECT_THAT(refusal(archive), HasSubstr("outside of the archive's folder"));
  EXPECT_THAT(refusal(Archive().add("m/version", "3")), HasSubstr("no record data.pkl"));
}

TEST(TorchFile, BrokenPicklesAreRefused) {
  for (const std::string& operations : {std::string("R"),        std::string("s"),
                                        std::string("u"),        std::string("Q"),
                                        std::string("h\x01"),    std::string("q\x01"),
                                        std::string("(q\x01"),   std::string("(\x85"),
                                        std::string("]a"),       std::string("]]Ku"),
                                        std::string("}(Nu"),     std::string("\x80\x09"),
                                        std::string("NN"),       std::string("b"),
                                        std::string("}b"),       std::string(")Q"),
                                        std::string("((t"),      "X" + number(0xffffffff, 4),
                                        std::string("cos"),      "\x8d" + number(UINT64_MAX, 8),
                                        std::string("\x8a\x09"), std::string(")Nb"),
                                        std::string("]]a]a")}) {
    EXPECT_NE(of_pickle(operations), "accepted") << testing::PrintToString(operations);
  }
  const std::string good = state_dict({{"w", "0", 6, 0, {2, 3}, {3, 1}}});
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_NE(refusal(torch_archive(good.substr(0, size), {{"0", six_floats}})), "accepted") << size;
}

TEST(TorchFile, ListsThatContainThemselvesDoNoHarm) {
  EXPECT_NE(of_pickle("]q\x01h\x01"
                      "a"),
            "accepted");
  EXPECT_NE(of_pickle(std::string(100000, ']')), "accepted");
  EXPECT_NE(of_pickle("]" + std::string(100000, '\x85')), "accepted");
}

TEST(TorchFile, ChangedBytesNeverLeadOutOfTheFile) {
  const std::string good =
      torch_archive(state_dict({{"w", "0", 6, 0, {2, 3}, {3, 1}}, {"t", "0", 6, 0, {3, 2}, {1, 3}}}),
                    {{"0", six_floats}})
          .bytes();
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (int change = 0; change < 2; ++change) bytes[random() % bytes.size()] = static_cast<char>(random());
    try {
      for (const auto& [name, info] : read_torch_file(in_memory(bytes)).tensors) {
        EXPECT_LE(info.offset + info.bytes, static_cast<int64_t>(bytes.size()));
      }
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace pm::checkpoint
