// SPDX-License-Identifier: Apache-2.0
#include "controller/core/status_error.h"

#include <gtest/gtest.h>

using namespace pm::k8s;

namespace {
std::string status(int code, const char* reason, const char* message) {
  return Json{{"kind", "Status"}, {"code", code}, {"reason", reason}, {"message", message}}.dump();
}
Failure failure(int code, const char* reason = "", const char* message = "") {
  return classify(code, status(code, reason, message)).failure;
}
}  // namespace

TEST(StatusError, CodesHaveClasses) {
  EXPECT_EQ(failure(404), Failure::NotFound);
  EXPECT_EQ(failure(409, "AlreadyExists"), Failure::AlreadyExists);
  EXPECT_EQ(failure(409, "Conflict"), Failure::Conflict);
  EXPECT_EQ(failure(410, "Expired"), Failure::Gone);
  EXPECT_EQ(failure(429), Failure::TooManyRequests);
  EXPECT_EQ(failure(422, "Invalid"), Failure::Invalid);
  EXPECT_EQ(failure(400), Failure::Invalid);
  EXPECT_EQ(failure(401), Failure::Unauthorized);
  EXPECT_EQ(failure(403), Failure::Forbidden);
  EXPECT_EQ(failure(451), Failure::Permanent);
  for (int code : {408, 500, 502, 503, 504}) EXPECT_EQ(failure(code), Failure::Transient) << code;
}

TEST(StatusError, AnApplyWithAnUnknownFieldIsNotTransientAlthoughItAnswers500) {
  EXPECT_EQ(
      failure(500, "",
              "failed to create typed patch object (n/a; /v1, Kind=Service): .spec.x: field not declared in schema"),
      Failure::Invalid);
}

TEST(StatusError, ATooLargeResourceVersionWaitsAsLongAsTheServerSays) {
  Json body = Json::parse(status(504, "Timeout", "Too large resource version"));
  body["details"] = {{"retryAfterSeconds", 1}};
  const ApiError error = classify(504, body.dump());
  EXPECT_EQ(error.failure, Failure::Transient);
  EXPECT_EQ(error.retry_after, 1);
  EXPECT_EQ(classify(504, body.dump(), 3).retry_after, 3);
}

TEST(StatusError, AProxysPageBecomesAShortMessage) {
  const ApiError error = classify(502, std::string(100000, 'x'));
  EXPECT_EQ(error.message.size(), 256u);
  EXPECT_EQ(classify(500, "").message, "");
}

TEST(StatusError, StatusInAWatch) {
  EXPECT_EQ(classify_status(Json::parse(status(410, "Expired", "too old"))).failure, Failure::Gone);
  EXPECT_EQ(classify_status(Json::parse(R"({"reason":"Expired"})")).failure, Failure::Gone);
  EXPECT_EQ(classify_status(Json::parse(R"({"code":"x","reason":3})")).failure, Failure::Transient);
  EXPECT_EQ(classify_status(Json()).failure, Failure::Transient);
}

TEST(StatusError, TextNamesCodeReasonAndMessage) {
  EXPECT_EQ(to_string(classify(409, status(409, "Conflict", "modified"))), "409 Conflict: modified");
  EXPECT_EQ(to_string(no_answer("refused")), "NoAnswer: refused");
  EXPECT_TRUE(transient(no_answer("refused")));
}
