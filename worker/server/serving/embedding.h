// SPDX-License-Identifier: Apache-2.0
// How an output of the model becomes the vector of a text or an image.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace pm::server {

/// How the states of the tokens are pooled to a vector, as sentence-transformers defines it.
enum class Pooling : uint8_t { Mean, MeanSqrt, WeightedMean, Max, First, Last };

/// How two vectors are compared. The distances are negative, so that more is always closer.
enum class Similarity : uint8_t { Cosine, Dot, Euclidean, Manhattan };

enum class Activation : uint8_t { Identity, Tanh, Relu, Gelu, Sigmoid, Silu };

/// act(x W + b), plus x or x R. The matrices are [inputs, outputs].
struct DenseModule {
  size_t inputs = 0, outputs = 0;
  std::vector<float> weight;
  std::vector<float> bias;  ///< empty: none
  Activation activation = Activation::Identity;
  bool adds_input = false;
  std::vector<float> residual;  ///< R; empty: x itself is added
};

struct LayerNormModule {
  std::vector<float> gain, bias;
};

/// Scales to length 1.
struct NormalizeModule {};

/// A step from one vector to another.
using VectorModule = std::variant<DenseModule, LayerNormModule, NormalizeModule>;

/// The output that embeds a text or an image, and what is made of it. Empty `output`: embedding is not supported.
struct Embedding {
  std::string output;             ///< output of the forward pass: last_hidden_state, pooler_output, text_embeds, ...
  std::vector<Pooling> poolings;  ///< their vectors are concatenated; empty: the output is a vector already
  bool normalize = true;          ///< to length 1, at the end
  std::vector<std::shared_ptr<const VectorModule>> modules;  ///< between the pooling and the end
  bool skips_prompt = false;                                 ///< the tokens of a prompt are not pooled
};

}  // namespace pm::server
