// SPDX-License-Identifier: Apache-2.0
// Tests pooling and the modules behind it on numbers that are easy to compute by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "worker/server/embedding/pooled_vector.h"
#include "worker/server/tasks/vector_math.h"

namespace pm::test {
namespace {

using namespace server;
using testing::FloatNear;
using testing::Pointwise;

const std::vector<float> states{1, 10, 2, 40, 6, 20};  // three tokens of two values

TEST(PooledVector, EachPoolingIsThatOfSentenceTransformers) {
  const auto of = [](Pooling pooling, size_t skipped = 0) { return pool({pooling}, states.data(), 3, 2, skipped); };
  EXPECT_EQ(of(Pooling::First), (std::vector<float>{1, 10}));
  EXPECT_EQ(of(Pooling::Last), (std::vector<float>{6, 20}));
  EXPECT_EQ(of(Pooling::Max), (std::vector<float>{6, 40}));
  EXPECT_THAT(of(Pooling::Mean), Pointwise(FloatNear(1e-5f), {3.f, 70 / 3.f}));
  EXPECT_THAT(of(Pooling::MeanSqrt), Pointwise(FloatNear(1e-4f), {9 / std::sqrt(3.f), 70 / std::sqrt(3.f)}));
  EXPECT_THAT(of(Pooling::WeightedMean), Pointwise(FloatNear(1e-5f), {23 / 6.f, 150 / 6.f}));
  EXPECT_EQ(pool({Pooling::Max, Pooling::First}, states.data(), 3, 2), (std::vector<float>{6, 40, 1, 10}));
}

TEST(PooledVector, TokensOfAPromptAreLeftOutAndKeepTheirPlaces) {
  const auto of = [](Pooling pooling, size_t skipped) { return pool({pooling}, states.data(), 3, 2, skipped); };
  EXPECT_EQ(of(Pooling::First, 1), (std::vector<float>{2, 40}));
  EXPECT_EQ(of(Pooling::Mean, 1), (std::vector<float>{4, 30}));
  EXPECT_EQ(of(Pooling::Max, 2), (std::vector<float>{6, 20}));
  EXPECT_THAT(of(Pooling::WeightedMean, 1), Pointwise(FloatNear(1e-5f), {22 / 5.f, 140 / 5.f}));
  EXPECT_EQ(of(Pooling::Mean, 9), (std::vector<float>{6, 20})) << "of a text that ends in its prompt the last token";
}

TEST(VectorModules, ADenseModuleIsAProductABiasAnActivationAndAResidual) {
  DenseModule dense{2, 3, {1, 2, 3, 10, 20, 30}, {0, -100, 0}, Activation::Relu};
  EXPECT_EQ(apply(dense, {1, 2}), (std::vector<float>{21, 0, 63}));
  dense.adds_input = true;
  dense.residual = {1, 0, 0, 0, 1, 0};
  EXPECT_EQ(apply(dense, {1, 2}), (std::vector<float>{22, 2, 63}));
  const DenseModule square{2, 2, {1, 0, 0, 1}, {}, Activation::Identity, true};
  EXPECT_EQ(apply(square, {3, 4}), (std::vector<float>{6, 8}));
}

TEST(VectorModules, ActivationsAreThoseOfTorch) {
  const auto of = [](Activation activation) { return apply(DenseModule{1, 1, {1}, {}, activation}, {0.5f})[0]; };
  EXPECT_NEAR(of(Activation::Tanh), 0.4621172, 1e-6);
  EXPECT_NEAR(of(Activation::Gelu), 0.3457312, 1e-6);
  EXPECT_NEAR(of(Activation::Sigmoid), 0.6224593, 1e-6);
  EXPECT_NEAR(of(Activation::Silu), 0.3112297, 1e-6);
}

TEST(VectorModules, NormsScale) {
  EXPECT_THAT(apply(LayerNormModule{{2, 1}, {0, 5}}, {1, 3}), Pointwise(FloatNear(1e-4f), {-2.f, 6.f}));
  EXPECT_THAT(apply(NormalizeModule{}, {3, 4}), Pointwise(FloatNear(1e-6f), {0.6f, 0.8f}));
}

TEST(Similarities, DistancesAreNegative) {
  const std::vector<float> a{1, 2}, b{4, -2};
  EXPECT_NEAR(similarity_of(Similarity::Cosine, a, b), 0, 1e-12);
  EXPECT_NEAR(similarity_of(Similarity::Dot, a, a), 5, 1e-12);
  EXPECT_NEAR(similarity_of(Similarity::Euclidean, a, b), -5, 1e-12);
  EXPECT_NEAR(similarity_of(Similarity::Manhattan, a, b), -7, 1e-12);
}

}  // namespace
}  // namespace pm::test
