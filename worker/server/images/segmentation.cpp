// SPDX-License-Identifier: Apache-2.0
#include "worker/server/images/segmentation.h"

#include <algorithm>
#include <cmath>

#include "worker/server/tasks/vector_math.h"

namespace pm::server {
namespace {

/// Where a pixel of a larger image lies between two of a map, as bilinear interpolation without aligned corners has it.
struct Between {
  size_t first = 0, second = 0;
  float share = 0;  ///< of the second
};

std::vector<Between> between(int64_t from, int64_t to) {
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  std::vector<Between> places;
  for (int64_t i = 0; i < to; ++i) {
    const float place = std::max(0.0F, (static_cast<float>(i) + 0.5F) * scale - 0.5F);
    const auto first = std::min(static_cast<int64_t>(place), from - 1);
    places.push_back({static_cast<size_t>(first), static_cast<size_t>(std::min(first + 1, from - 1)),
                      std::min(1.0F, place - static_cast<float>(first))});
  }
  return places;
}

/// Which of several maps is highest at each pixel of an image, and how many pixels each wins and has.
struct Winners {
  std::vector<uint32_t> numbers;      ///< [height, width]
  std::vector<int64_t> won, reached;  ///< by number: pixels where the map is highest, pixels where it reaches a level
};

/// Enlarges maps [count, rows, columns] to an image, times `factors`, and compares them pixel by pixel.
Winners compare(const std::vector<float>& maps, size_t count, int64_t rows, int64_t columns,
                const std::vector<float>& factors, double level, int64_t height, int64_t width) {
  const std::vector<Between> down = between(rows, height), across = between(columns, width);
  const auto wide = static_cast<size_t>(width), narrow = static_cast<size_t>(columns);
  Winners found{std::vector<uint32_t>(static_cast<size_t>(height) * wide), std::vector<int64_t>(count),
                std::vector<int64_t>(count)};
  std::vector<float> line(narrow), best(wide);
  for (size_t y = 0; y < down.size(); ++y) {
    uint32_t* const winners = found.numbers.data() + y * wide;
    for (size_t number = 0; number < count; ++number) {
      const float* const map = maps.data() + number * static_cast<size_t>(rows) * narrow;
      const float *const upper = map + down[y].first * narrow, *const lower = map + down[y].second * narrow;
      for (size_t x = 0; x < narrow; ++x) line[x] = (1 - down[y].share) * upper[x] + down[y].share * lower[x];
      for (size_t x = 0; x < wide; ++x) {
        const Between& at = across[x];
        const float value = ((1 - at.share) * line[at.first] + at.share * line[at.second]) * factors[number];
        found.reached[number] += value >= level ? 1 : 0;
        if (number > 0 && !(value > best[x])) continue;
        best[x] = value;
        winners[x] = static_cast<uint32_t>(number);
      }
    }
    for (size_t x = 0; x < wide; ++x) ++found.won[winners[x]];
  }
  return found;
}

std::vector<double> shares_of(const ObjectMasks& given, size_t object) {
  const auto classes = static_cast<size_t>(given.classes);
  return softmax(given.logits.subspan(object * classes, classes));
}

}  // namespace

std::vector<uint8_t> Segmentation::mask(const Segment& segment) const {
  std::vector<uint8_t> mask(numbers.size());
  for (size_t i = 0; i < mask.size(); ++i) mask[i] = numbers[i] == segment.number ? 255 : 0;
  return mask;
}

Segmentation segment_objects(const ObjectMasks& given, const SegmentLimits& limits, int64_t height, int64_t width) {
  const auto pixels = static_cast<size_t>(given.height * given.width);
  std::vector<Segment> kept;
  std::vector<float> maps, factors;
  for (size_t object = 0; object < given.objects(); ++object) {
    const std::vector<double> shares = shares_of(given, object);
    const auto best = std::max_element(shares.begin(), shares.end());
    if (best == shares.end() - 1 || !(*best > limits.threshold)) continue;
    kept.push_back({static_cast<size_t>(best - shares.begin()), *best, static_cast<uint32_t>(kept.size())});
    factors.push_back(static_cast<float>(*best));
    for (float logit : given.masks.subspan(object * pixels, pixels)) maps.push_back(static_cast<float>(sigmoid(logit)));
  }
  if (kept.empty()) return {};
  Winners winners =
      compare(maps, kept.size(), given.height, given.width, factors, limits.mask_threshold, height, width);
  Segmentation found;
  for (Segment& segment : kept) {
    const auto won = static_cast<double>(winners.won[segment.number]),
               reached = static_cast<double>(winners.reached[segment.number]);
    if (won == 0 || reached == 0 || !(won / reached > limits.overlap_mask_area_threshold)) continue;
    segment.score = std::round(segment.score * 1e6) / 1e6;
    found.segments.push_back(segment);
  }
  found.numbers = std::move(winners.numbers);
  return found;
}

Segmentation segment_classes(const ObjectMasks& given, int64_t height, int64_t width) {
  const auto pixels = static_cast<size_t>(given.height * given.width), classes = static_cast<size_t>(given.classes - 1);
  std::vector<float> maps(classes * pixels);
  for (size_t object = 0; object < given.objects(); ++object) {
    const std::vector<double> shares = shares_of(given, object);
    for (size_t i = 0; i < pixels; ++i) {
      const double inside = sigmoid(given.masks[object * pixels + i]);
      for (size_t label = 0; label < classes; ++label)
        maps[label * pixels + i] += static_cast<float>(shares[label] * inside);
    }
  }
  Winners winners = compare(maps, classes, given.height, given.width, std::vector<float>(classes, 1), 0, height, width);
  Segmentation found;
  for (size_t label = 0; label < classes; ++label)
    if (winners.won[label] > 0) found.segments.push_back({label, 0, static_cast<uint32_t>(label)});
  found.numbers = std::move(winners.numbers);
  return found;
}

}  // namespace pm::server
