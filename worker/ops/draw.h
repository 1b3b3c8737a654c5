// The choice of tokens where the scores are, on devices that have a sampler of their own: one small copy brings the tokens, not the scores, to the host.
#pragma once
#include <cstdint>
#include <vector>

namespace at { class Tensor; }                          // the choices themselves are no matter of torch's
namespace c10 { enum class DeviceType : int8_t; }

namespace pm::ops {

/// How a token is chosen, under Hugging Face's names; the random number is Philox(seed, sequence, position).
struct Draw {
  double temperature = 1, top_p = 1, min_p = 0;
  int64_t top_k = 0;                ///< 0: off
  uint64_t seed = 0, sequence = 0, position = 0;
  bool sample = false;              ///< false: the best id, the smaller one when equal; all else is not looked at
  bool operator==(const Draw&) const = default;
};

/// What changes the score of an id before the choice: a negative one is multiplied by `factor`, others divided; then `less` is taken away, infinity for what may not come.
struct ScoreEdit {
  int32_t id = 0;
  float factor = 1, less = 0;
  bool operator==(const ScoreEdit&) const = default;
};

/// The choices from several rows of scores; a row may have several, or none.
struct Draws {
  std::vector<Draw> how;
  std::vector<int64_t> rows;        ///< of each choice
  std::vector<ScoreEdit> edits;     ///< of a row each id once
  std::vector<int64_t> edit_rows;   ///< of each edit
};

/// Vocabularies up to this have such a sampler.
inline constexpr int64_t draw_vocabulary = int64_t{1} << 19;

/// Whether tensors on this kind of device can be drawn from.
bool draws(c10::DeviceType);
/// scores [rows, vocabulary] fp32, which are overwritten -> ids [choices] int64, on the same device. Throws std::logic_error where draws() is false.
at::Tensor draw(at::Tensor scores, const Draws&);

}  // namespace pm::ops
