// SPDX-License-Identifier: Apache-2.0
// Attention in chunks, in the order of tokens and of hashes, compared with the definition for each query.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "worker/ops/chunk_attention.h"

namespace pm::ops {
namespace {

constexpr int64_t heads = 2, width = 3;

ChunkSequence sequence(std::vector<int64_t> columns, int64_t padded) {
  at::manual_seed(3);
  const auto tokens = static_cast<int64_t>(columns.size());
  return {.q = at::randn({tokens, heads, width}),
          .k = at::randn({tokens, heads, width}),
          .v = at::randn({tokens, heads, width}),
          .columns = at::tensor(columns, at::kLong),
          .padded = padded,
          .chunk = 4,
          .before = 1,
          .after = 1,
          .causal = false};
}

std::vector<int64_t> first(int64_t count) {
  std::vector<int64_t> columns(static_cast<size_t>(count));
  std::iota(columns.begin(), columns.end(), 0);
  return columns;
}

struct Result {
  at::Tensor out;
  double logit = 0;
};

/// Rounds to F32, in which sums of scores are held: those of a query that sees nothing but itself, twice, are coarse.
double rounded(double value) { return static_cast<float>(value); }

/// What one query of a head gets of these keys, which may repeat.
Result attended(const ChunkSequence& s, int64_t head, int64_t query, const std::vector<int64_t>& keys, bool hides_own) {
  const at::Tensor columns = s.columns;
  const auto column = [&](int64_t token) { return columns[token].item<int64_t>(); };
  std::vector<double> scores;
  for (const int64_t key : keys) {
    double score = key < 0 ? -1e9 : (s.q[query][head] * s.k[key][head]).sum().item<double>();
    if (key >= 0 && s.causal && column(key) > column(query)) score = -1e9;
    if (hides_own && key == query) score = -1e5;
    scores.push_back(score);
  }
  const double most = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - most);
  Result result{at::zeros({width}), rounded(most + std::log(sum))};
  for (size_t i = 0; i < keys.size(); ++i)
    if (keys[i] >= 0) result.out += s.v[keys[i]][head] * std::exp(scores[i] - result.logit);
  return result;
}

/// The keys that the slot `at` of `slots` sees, by the rule of transformers: a list of chunks is turned by `step`
/// places, as slices of Python have it.
std::vector<int64_t> seen(const ChunkSequence& s, const std::vector<int64_t>& slots, int64_t at) {
  const int64_t chunks = static_cast<int64_t>(slots.size()) / s.chunk;
  std::vector<int64_t> keys;
  for (int64_t step = -s.before; step <= s.after; ++step) {
    const int64_t turn = step < 0 ? std::max<int64_t>(0, chunks + step) : std::min(step, chunks);
    std::vector<int64_t> turned;
    for (int64_t i = turn; i < chunks; ++i) turned.push_back(i);
    for (int64_t i = 0; i < turn; ++i) turned.push_back(i);
    const int64_t chunk = step == 0 ? at / s.chunk : turned[static_cast<size_t>(at / s.chunk)];
    for (int64_t i = 0; i < s.chunk; ++i) keys.push_back(slots[static_cast<size_t>(chunk * s.chunk + i)]);
  }
  return keys;
}

void expect_in_order_of_tokens(const ChunkSequence& s) {
  std::vector<int64_t> slots(static_cast<size_t>(s.padded), -1);
  for (int64_t token = 0; token < s.q.size(0); ++token)
    slots[static_cast<size_t>(s.columns[token].item<int64_t>())] = token;
  const at::Tensor out = attend_in_chunks(s);
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t token = 0; token < s.q.size(0); ++token) {
      const auto keys = seen(s, slots, s.columns[token].item<int64_t>());
      EXPECT_TRUE(at::allclose(out[token][head], attended(s, head, token, keys, false).out, 1e-4, 1e-5))
          << "token " << token << " of head " << head;
    }
  }
}

TEST(ChunkAttention, SeesTheChunksBesideItsOwn) { expect_in_order_of_tokens(sequence(first(12), 12)); }

TEST(ChunkAttention, SeesNoPadding) { expect_in_order_of_tokens(sequence({2, 3, 4, 6, 7, 10, 13}, 16)); }

TEST(ChunkAttention, SeesNothingBehindWhereItIsCausal) {
  ChunkSequence s = sequence(first(15), 16);
  s.causal = true;
  s.after = 0;
  s.before = 2;
  expect_in_order_of_tokens(s);
}

TEST(ChunkAttention, EndsWhereItBeganBeyondTheNumberOfChunks) {
  ChunkSequence s = sequence(first(8), 8);
  s.before = 3;
  s.after = 5;
  expect_in_order_of_tokens(s);
}

TEST(ChunkAttention, SeesAllOfOneChunk) {
  const ChunkSequence s = sequence({1, 2, 3}, 4);
  const at::Tensor out = attend_in_chunks(s);
  for (int64_t token = 0; token < 3; ++token)
    EXPECT_TRUE(at::allclose(out[token][1], attended(s, 1, token, {0, 1, 2}, false).out, 1e-4, 1e-5));
}

/// Weighs what a query gets in several rounds.
at::Tensor over_rounds(const std::vector<Result>& results) {
  double most = -1e30, sum = 0;
  for (const Result& result : results) most = std::max(most, result.logit);
  for (const Result& result : results) sum += std::exp(result.logit - most);
  at::Tensor expected = at::zeros({width});
  const double all = rounded(most + std::log(sum));
  for (const Result& result : results) expected += result.out * std::exp(result.logit - all);
  return expected;
}

void expect_in_order_of_hashes(const ChunkSequence& s, const at::Tensor& buckets) {
  const at::Tensor out = attend_by_hashes(s, buckets);
  const int64_t tokens = s.q.size(0), rounds = buckets.size(1);
  for (int64_t head = 0; head < heads; ++head) {
    std::vector<int64_t> slots;
    for (int64_t round = 0; round < rounds; ++round) {
      std::vector<int64_t> order = first(tokens);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return buckets[head][round][a].item<int64_t>() < buckets[head][round][b].item<int64_t>();
      });
      order.resize(static_cast<size_t>(s.padded), -1);
      slots.insert(slots.end(), order.begin(), order.end());
    }
    for (int64_t token = 0; token < tokens; ++token) {
      std::vector<Result> results;
      for (int64_t round = 0; round < rounds; ++round) {
        const auto begin = slots.begin() + round * s.padded;
        const int64_t at = std::find(begin, begin + s.padded, token) - slots.begin();
        results.push_back(attended(s, head, token, seen(s, slots, at), true));
      }
      EXPECT_TRUE(at::allclose(out[token][head], over_rounds(results), 1e-4, 1e-5))
          << "token " << token << " of head " << head;
    }
  }
}

TEST(ChunkAttention, SortsTokensByHashes) {
  const ChunkSequence s = sequence(first(12), 12);
  expect_in_order_of_hashes(s, at::randint(5, {heads, 1, 12}, at::kLong));
}

TEST(ChunkAttention, WeightsRoundsByTheSumsOfTheirScores) {
  ChunkSequence s = sequence({0, 1, 3, 4, 5, 9, 10}, 12);
  s.causal = true;
  s.after = 0;
  expect_in_order_of_hashes(s, at::randint(3, {heads, 3, 7}, at::kLong));
}

TEST(ChunkAttention, SeesItselfWhereItSeesNothingElse) {
  ChunkSequence s = sequence(first(4), 4);
  s.causal = true;
  EXPECT_TRUE(at::allclose(attend_by_hashes(s, {})[0], s.v[0], 1e-5, 1e-6));
}

TEST(ChunkAttention, ATokenThatComesAloneSeesFromTheBeginningOfAChunkOn) {
  for (const int64_t before : {0, 1, 3}) {
    ChunkSequence s = sequence(first(15), 16);
    s.before = before;
    const at::Tensor out = attend_one_by_one(s, 2);
    ASSERT_EQ(out.sizes(), (std::vector<int64_t>{13, heads, width}));
    for (int64_t token = 2; token < 15; ++token) {
      std::vector<int64_t> past = first(token), keys;
      const int64_t begin = (token / 4 - before) * 4;  // a slice as Python has it: a negative one counts from the end
      for (const int64_t key : past)
        if (key >= (begin < 0 ? token + begin : begin)) keys.push_back(key);
      keys.push_back(token);
      for (int64_t head = 0; head < heads; ++head)
        EXPECT_TRUE(at::allclose(out[token - 2][head], attended(s, head, token, keys, false).out, 1e-4, 1e-5))
            << "token " << token << " of head " << head << ", " << before << " chunks before";
    }
  }
}

TEST(ChunkAttention, ATokenThatComesAloneIsSortedAmongThoseBeforeIt) {
  for (const int64_t rounds : {1, 3}) {
    ChunkSequence s = sequence(first(14), 16);
    s.before = 2;
    s.after = 0;
    const at::Tensor buckets = at::randint(4, {heads, rounds, 14}, at::kLong);
    const int64_t known = 3, sorted_from = 6;
    const at::Tensor out = attend_by_hashes_one_by_one(s, buckets, known, sorted_from);
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t token = known; token < 14; ++token) {
        std::vector<Result> results;
        for (int64_t round = 0; round < (token < sorted_from ? 1 : rounds); ++round) {
          std::vector<int64_t> order = first(token + 1), keys = order;
          if (token >= sorted_from) {
            std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
              return buckets[head][round][a].item<int64_t>() < buckets[head][round][b].item<int64_t>();
            });
            const int64_t place = std::find(order.begin(), order.end(), token) - order.begin();
            keys.clear();
            for (int64_t i = (place / 4 - 2) * 4; i < (place / 4 + 1) * 4; ++i)
              keys.push_back(order[static_cast<size_t>((i + 4 * (token + 1)) % (token + 1))]);
          }
          results.push_back(attended(s, head, token, keys, true));
        }
        EXPECT_TRUE(at::allclose(out[token - known][head], over_rounds(results), 1e-4, 1e-5))
            << "token " << token << " of head " << head << " in " << rounds << " rounds";
      }
    }
  }
}

TEST(ChunkAttention, TokensThatComeBeforeBucketsAreThereNeedNone) {
  const ChunkSequence s = sequence(first(5), 5);
  const at::Tensor out = attend_by_hashes_one_by_one(s, {}, 2, 9);
  EXPECT_TRUE(at::allclose(out[2][0], attended(s, 0, 4, first(5), true).out, 1e-4, 1e-5));
}

TEST(ChunkAttention, TokensThatComeAloneAreAttendedInRuns) {
  at::manual_seed(4);
  ChunkSequence s = sequence(first(1), 1);
  const int64_t tokens = 1200;
  s.chunk = 100;
  s.after = 0;
  for (at::Tensor* one : {&s.q, &s.k, &s.v}) *one = at::randn({tokens, 8, width});
  const at::Tensor buckets = at::randint(40, {8, 1, tokens}, at::kLong), some = buckets.slice(2, 0, 1001);
  const at::Tensor out = attend_by_hashes_one_by_one(s, buckets, 0, 0);
  for (at::Tensor* one : {&s.q, &s.k, &s.v}) *one = one->narrow(0, 0, 1001);
  EXPECT_TRUE(at::allclose(attend_by_hashes_one_by_one(s, some, 1000, 0)[0], out[1000], 1e-4, 1e-5))
      << "a token sees none behind it, and no other run";
}

TEST(ChunkAttention, RunsLongSequencesInRunsOfChunks) {
  at::manual_seed(4);
  ChunkSequence s = sequence(first(1), 1);
  const int64_t tokens = 6000;
  s.columns = at::arange(tokens);
  s.padded = tokens;
  s.chunk = 500;
  for (at::Tensor* one : {&s.q, &s.k, &s.v}) *one = at::randn({tokens, 1, width});
  const at::Tensor out = attend_in_chunks(s), scores = at::matmul(s.q.select(1, 0), s.k.select(1, 0).t());
  const at::Tensor chunk = at::arange(tokens).div(500, "floor"), apart = (chunk.unsqueeze(1) - chunk).remainder(12);
  const at::Tensor weights = at::softmax(scores.masked_fill(at::logical_and(apart > 1, apart < 11), -1e9), 1);
  EXPECT_TRUE(at::allclose(out.select(1, 0), at::matmul(weights, s.v.select(1, 0)), 1e-3, 1e-4));
}

TEST(HashRotations, AreThoseOfAllHeadsFromOneSeed) {
  const at::Tensor all = at::randn({5, width, 2, 5}, at::detail::createCPUGenerator(7), at::TensorOptions(at::kFloat));
  const HashRotations own = draw_rotations(7, 5, width, 2, {4, 6}, 1, 3);
  EXPECT_TRUE(at::equal(own.matrix, all.narrow(0, 1, 3).flatten(2)));
  at::manual_seed(7);  // as transformers sets the seed of all
  EXPECT_TRUE(at::equal(at::randn({5, width, 2, 5}), all));
}

TEST(HashRotations, PutVectorsIntoTheBucketOfTheNearestAxis) {
  at::manual_seed(9);
  const HashRotations rotations = draw_rotations(1, heads, width, 2, {4, 6}, 0, heads);
  const at::Tensor vectors = at::randn({heads, 11, width}), buckets = hash_buckets(vectors, rotations);
  ASSERT_EQ(buckets.sizes(), (std::vector<int64_t>{heads, 2, 11}));
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t token = 0; token < 11; ++token) {
      for (int64_t round = 0; round < 2; ++round) {
        const at::Tensor rotated = at::matmul(vectors[head][token], rotations.matrix[head]).reshape({2, 5})[round];
        const auto digit = [&](const at::Tensor& part) { return at::cat({part, -part}).argmax().item<int64_t>(); };
        EXPECT_EQ(buckets[head][round][token].item<int64_t>(),
                  digit(rotated.narrow(0, 0, 2)) + 4 * digit(rotated.narrow(0, 2, 3)));
      }
    }
  }
}

}  // namespace
}  // namespace pm::ops
