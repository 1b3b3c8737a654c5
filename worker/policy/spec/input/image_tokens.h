// SPDX-License-Identifier: Apache-2.0
// Images among the tokens of a decoder: which tokens stand for them, and how a stack of images makes their rows.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "worker/policy/spec/enums.h"
#include "worker/policy/spec/param.h"

namespace pm::policy {

/// The output of a forward pass with what a tower makes of images for the tokens of a decoder: [images x rows, hidden],
/// as transformers has it, with the rows of deep projectors beside them [images x rows, hidden x (1 + deepstack)].
inline constexpr const char* image_rows_output = "image_hidden_states";

/// Makes what tokens of a decoder are from the states of an image: last(act(first(norm(pool(states))))). Absent parts
/// are left out. With a PatchGrid the states of a square of patches stand side by side between norm and first.
struct ImageProjector {
  int64_t skipped = 0;            ///< the first states, that of the class token, which are left out
  int64_t pooled = 1;             ///< the side of squares of patches whose mean is one row (Gemma 3)
  int64_t merged = 1;             ///< patches of a square whose states stand side by side: PatchGrid::merge squared
  std::optional<Norm> norm;       ///< [hidden of the stack]
  bool norm_merged = false;       ///< the norm is of the states of a square [hidden x merged]
  bool by_channel = false;        ///< states of a square stand by channel, then by patch, as torch's unfold has them
  std::optional<Linear> merging;  ///< [hidden of the stack, hidden x merged], before `first`, which reads its result
  Linear first;                   ///< [width, hidden of the stack x merged]
  std::optional<Activation> activation;
  std::optional<Linear> last;  ///< [hidden of the decoder, width]

  void collect(ParamCollector& all) const {
    all.add(norm);
    all.add(merging);
    all.add(first);
    all.add(last);
  }
};

/// A projector of the states behind an inner layer of a tower. Its rows are added to the states of the tokens of images
/// behind a layer of the decoder: those of the first one behind the first layer, and so on (Meng et al., "DeepStack",
/// 2024).
struct DeepProjector {
  int64_t layer = 0;
  ImageProjector projector;
};

/// What stands for an image in the text of a prompt, and what that becomes: before, begin, the image's tokens, end,
/// after.
struct ImageSpelling {
  int64_t placeholder = 0;       ///< the id of the token that chat templates write
  std::string before, after;     ///< texts
  std::string between, last;     ///< texts behind each row of an image of any size but the last, and behind that one
  int64_t begin = -1, end = -1;  ///< ids of tokens; -1: none
};

/// The tokens of a stack in whose place the rows of images stand.
struct ImageTokens {
  std::string stack;           ///< that makes the rows; it has an ImageProjector
  int64_t token = 0;           ///< the id that each of these tokens has
  int64_t rows = 0;            ///< of one image; 0: its squares of patches (PatchGrid)
  int64_t deepstack = 0;       ///< layers behind which further rows are added: the tower's deep projectors
  bool bidirectional = false;  ///< they attend to each other in both directions (Gemma 3)
  ImageSpelling spelling;
};

}  // namespace pm::policy
