// SPDX-License-Identifier: Apache-2.0
#include "controller/client/retry.h"

#include <gtest/gtest.h>

#include "controller/core/status_error.h"

using namespace pm::k8s;
using std::chrono::milliseconds;

namespace {
ApiError error(int code, double after = 0) { return classify(code, "", after); }
const RetryState first{.attempts = 1};
}  // namespace

TEST(Retry, WaitsAsLongAsTheServerAsks) {
  EXPECT_EQ(retry_after(first, Verb::Create, error(429, 2)), milliseconds(2000));
  EXPECT_EQ(retry_after(first, Verb::Get, error(503, 1)), milliseconds(1000));
}

TEST(Retry, WithoutRetryAfterTheCallerDecides) {
  for (int code : {429, 500, 503, 504, 409, 404, 422}) EXPECT_FALSE(retry_after(first, Verb::Get, error(code))) << code;
  EXPECT_FALSE(retry_after(first, Verb::Get, error(422, 1)));
}

TEST(Retry, IsBoundedInAttemptsAndTime) {
  EXPECT_FALSE(retry_after({.attempts = 10}, Verb::Get, error(429, 1)));
  EXPECT_FALSE(retry_after({.attempts = 3, .waited = milliseconds(29'500)}, Verb::Get, error(429, 1)));
  EXPECT_FALSE(retry_after(first, Verb::Get, error(429, 3600)));
}

TEST(Retry, ALostAnswerIsAskedForOnceMoreExceptForCreate) {
  for (Verb verb : {Verb::Get, Verb::List, Verb::Apply, Verb::MergePatch, Verb::Delete})
    EXPECT_EQ(retry_after(first, verb, no_answer("reset")), milliseconds(0));
  EXPECT_FALSE(retry_after(first, Verb::Create, no_answer("reset")));
  EXPECT_FALSE(retry_after({.attempts = 2}, Verb::Get, no_answer("reset")));
}

TEST(Retry, A401IsTriedOnceWithAFreshToken) {
  EXPECT_EQ(retry_after(first, Verb::Create, error(401)), milliseconds(0));
  EXPECT_FALSE(retry_after({.attempts = 2, .unauthorized_before = true}, Verb::Create, error(401)));
}
