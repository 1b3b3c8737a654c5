// SPDX-License-Identifier: Apache-2.0
#include "worker/server/http/multipart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/server/http/api_error.h"

namespace pm::test {
namespace {

using server::parse_multipart;
using testing::HasSubstr;

const std::string type = "multipart/form-data; boundary=b-1";

std::string refusal(const std::string& body, const std::string& content_type = type) {
  try {
    parse_multipart(content_type, body);
  } catch (const server::ApiError& error) {
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.code, "malformed_request");
    return error.what();
  }
  return "nothing was refused";
}

std::string part(const std::string& headers, const std::string& content) {
  return "--b-1\r\n" + headers + "\r\n\r\n" + content + "\r\n";
}

TEST(Multipart, PartsHaveNamesAndTheirBytes) {
  const std::string bytes("a\r\n--b\0-1\r\n--", 13);
  const std::string body =
      "preamble\r\n" + part(R"(Content-Disposition: form-data; name="model")", "tiny") +
      part("Content-Type: audio/wav\r\ncontent-disposition:form-data; filename=\"a;b.wav\" ; name=file", bytes) +
      part(R"(Content-Disposition: form-data; name="a \"quoted\" name[]")", "") + "--b-1--\r\nend";
  const auto parts = parse_multipart("Multipart/Form-Data; charset=utf-8; boundary=\"b-1\"", body);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(std::tuple(parts[0].name, parts[0].is_file, parts[0].content), std::tuple("model", false, "tiny"));
  EXPECT_EQ(std::tuple(parts[1].name, parts[1].is_file, parts[1].content), std::tuple("file", true, bytes));
  EXPECT_EQ(std::tuple(parts[2].name, parts[2].content), std::tuple("a \"quoted\" name[]", ""));
  EXPECT_TRUE(parse_multipart(type, "--b-1--").empty());
}

TEST(Multipart, WhatIsNoFormIsRefused) {
  const std::string disposition = "Content-Disposition: form-data; name=a";
  EXPECT_THAT(refusal("--b-1--", "multipart/form-data"), HasSubstr("no boundary"));
  EXPECT_THAT(refusal("--b-1--", "multipart/form-data; boundary=" + std::string(71, 'b')), HasSubstr("no boundary"));
  EXPECT_THAT(refusal(""), HasSubstr("does not contain the boundary --b-1"));
  EXPECT_THAT(refusal("--b-1"), HasSubstr("neither a line end nor --"));
  EXPECT_THAT(refusal("--b-1\r\n" + disposition), HasSubstr("headers of part 1 do not end"));
  EXPECT_THAT(refusal("--b-1\r\n" + disposition + "\r\n\r\nabc"), HasSubstr("does not end with the boundary"));
  EXPECT_THAT(refusal(part("Content-Type: text/plain", "abc") + "--b-1--"), HasSubstr("part 1 has no name"));
  EXPECT_THAT(refusal(part("Content-Disposition: attachment; name=a", "") + "--b-1--"), HasSubstr("not form-data"));
  EXPECT_THAT(refusal(part(disposition + "\r\nX: " + std::string(5000, 'x'), "") + "--b-1--"), HasSubstr("4096 bytes"));
  std::string many;
  for (int i = 0; i < 65; ++i) many += part(disposition, "");
  EXPECT_THAT(refusal(many + "--b-1--"), HasSubstr("more than 64 parts"));
}

}  // namespace
}  // namespace pm::test
