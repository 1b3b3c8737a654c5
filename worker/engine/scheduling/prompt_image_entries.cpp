// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/scheduling/prompt_image_entries.h"

#include <algorithm>

#include "worker/base/error.h"

namespace pm::engine {

namespace {

/// Adds the positions of M-RoPE (Wang et al., "Qwen2-VL", 2024) of `count` tokens from `first` on.
/// The tokens of an image begin behind the token before it and stand at their row and column; what follows begins
/// behind the larger of both.
void add_positions(const Request& request, int64_t first, int64_t count, StepEntry& entry) {
  int64_t shift = 0, next = first;
  std::vector<int32_t> axes;
  const auto add = [&](int64_t time, int64_t down, int64_t across) {
    for (const int64_t one : {time, down, across}) axes.push_back(static_cast<int32_t>(one));
  };
  const auto add_texts = [&](int64_t end) {
    for (; next < end; ++next) add(next + shift, next + shift, next + shift);
  };
  bool apart = false;  // a token has another shift than the first one
  for (const PromptImage& image : request.images) {
    const int64_t end = image.first + image.tokens;
    if (image.across == 0 || image.first >= first + count) break;
    if (end > first) {
      apart = true;
      add_texts(image.first);
      const int64_t begin = image.first + shift;
      for (; next < std::min(end, first + count); ++next) {
        const int64_t square = next - image.first;
        add(begin, begin + square / image.across, begin + square % image.across);
      }
    } else {
      entry.position_shift += std::max(image.down, image.across) - image.tokens;
    }
    shift += std::max(image.down, image.across) - image.tokens;
  }
  if (!apart) return;
  add_texts(first + count);
  entry.axes = std::move(axes);
}

}  // namespace

void check_images(const Request& request, int64_t width) {
  const auto refuse = [](const std::string& message) { throw Error(Reason::InvalidRequest, message); };
  const auto text = [](int64_t number) { return std::to_string(number); };
  if (request.images.empty()) return;
  if (width == 0) refuse("the prompt has images; this model reads none among the tokens of a prompt");
  int64_t end = 0;
  for (const PromptImage& image : request.images) {
    const auto rows = image.rows ? static_cast<int64_t>(image.rows->size()) : 0;
    if (image.first < end || image.tokens < 1 || image.key >= 0 ||
        image.first + image.tokens > static_cast<int64_t>(request.prompt.size()) || image.first_row < 0 ||
        rows % width != 0 || rows / width < image.first_row + image.tokens)
      refuse("an image has " + text(rows) + " numbers for " + text(image.tokens) + " tokens from " + text(image.first) +
             " on, expected " + text(width) + " for each of tokens of the prompt");
    const bool placed = image.down > 0 && image.across > 0 && image.down * image.across == image.tokens;
    if (!placed && (image.down != 0 || image.across != 0))
      refuse("an image of " + text(image.tokens) + " tokens has " + text(image.down) + " x " + text(image.across) +
             " of them");
    end = image.first + image.tokens;
  }
}

int64_t without_parts_of_images(const Request& request, int64_t first, int64_t count) {
  for (const PromptImage& image : request.images) {
    const int64_t begin = image.first - first, end = begin + image.tokens;
    if (begin < count && count < end) return begin > 0 ? begin : end;
  }
  return count;
}

void add_images(const Request& request, int64_t first, int64_t count, const Limits& limits, StepEntry& entry) {
  for (const PromptImage& image : request.images) {
    const int64_t begin = std::max(first, image.first), end = std::min(first + count, image.first + image.tokens);
    if (begin >= end) continue;
    if (limits.bidirectional_images)
      entry.bidirectional.insert(entry.bidirectional.end(),
                                 {static_cast<int32_t>(image.first), static_cast<int32_t>(image.first + image.tokens)});
    const int64_t width = limits.image_width, row = image.first_row + begin - image.first;
    for (int64_t place = begin; place < end; ++place) entry.image_places.push_back(static_cast<int32_t>(place - first));
    entry.image_rows.insert(entry.image_rows.end(), image.rows->begin() + row * width,
                            image.rows->begin() + (row + end - begin) * width);
  }
  add_positions(request, first, count, entry);
}

}  // namespace pm::engine
