// SPDX-License-Identifier: Apache-2.0
#include "controller/client/token.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

using namespace pm::k8s;

namespace {

struct StillClock final : Clock {
  Steady at{};
  Steady now() const override { return at; }
  Wall wall() const override { return {}; }
};

struct TokenFile : testing::Test {
  StillClock clock;
  std::string path = testing::TempDir() + "token-" + std::to_string(getpid());
  void write(const std::string& text) { std::ofstream(path) << text; }
  void TearDown() override { std::filesystem::remove(path); }
};

}  // namespace

TEST_F(TokenFile, IsReadAgainAfterAMinute) {
  write("one\n");
  Token token({.file = path}, clock);
  EXPECT_EQ(token.get(), "one");
  write("two\n");
  clock.at += std::chrono::seconds(59);
  EXPECT_EQ(token.get(), "one");
  clock.at += std::chrono::seconds(1);
  EXPECT_EQ(token.get(), "two");
}

TEST_F(TokenFile, IsReadAtOnceAfterItWasRefused) {
  write("one");
  Token token({.file = path}, clock);
  token.get();
  write("two");
  token.expire();
  EXPECT_EQ(token.get(), "two");
}

TEST_F(TokenFile, TheOldTokenStaysWhileTheFileIsGone) {
  write("one");
  Token token({.file = path}, clock);
  token.get();
  std::filesystem::remove(path);
  token.expire();
  EXPECT_EQ(token.get(), "one");
}

TEST_F(TokenFile, ATokenInPlaceNeedsNoFile) { EXPECT_EQ(Token({.data = "t"}, clock).get(), "t"); }
