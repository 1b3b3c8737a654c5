// See sampler.h.
#include "worker/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace pm::engine {

namespace {

constexpr float never = -std::numeric_limits<float>::infinity();

/// Keeps the k best and what equals the k-th.
void keep_top_k(std::vector<float>& scores, int64_t k) {
  if (k <= 0 || k >= static_cast<int64_t>(scores.size())) return;
  std::vector<float> sorted = scores;
  std::nth_element(sorted.begin(), sorted.begin() + (k - 1), sorted.end(), std::greater<>());
  const float least = sorted[static_cast<size_t>(k - 1)];
  for (float& score : scores) if (score < least) score = never;
}

/// Drops the tail whose probabilities, summed from the least likely up, stay within 1 - p; the best always stays.
void keep_top_p(std::vector<float>& scores, double p) {
  if (p >= 1) return;
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] < scores[b]; });
  const float best = scores[order.back()];
  double total = 0, tail = 0;
  for (float score : scores) total += std::exp(static_cast<double>(score) - best);
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    tail += std::exp(static_cast<double>(scores[order[i]]) - best) / total;
    if (tail > 1 - p) return;
    scores[order[i]] = never;
  }
}

/// Drops what is less likely than `share` of the best.
void keep_min_p(std::vector<float>& scores, double share) {
  if (share <= 0) return;
  const float best = *std::max_element(scores.begin(), scores.end());
  for (float& score : scores) {
    if (std::exp(static_cast<double>(score) - best) < share && score != best) score = never;
  }
}

/// Locally typical sampling (Meister et al. 2022): keeps the tokens whose surprise is nearest to the entropy, until they reach `mass`.
void keep_typical(std::vector<float>& scores, double mass) {
  if (mass >= 1) return;
  const float best = *std::max_element(scores.begin(), scores.end());
  double total = 0, entropy = 0;
  for (float score : scores) total += std::exp(static_cast<double>(score) - best);
  std::vector<double> surprise(scores.size());
  for (size_t id = 0; id < scores.size(); ++id) {
    surprise[id] = std::log(total) - (static_cast<double>(scores[id]) - best);
    if (scores[id] != never) entropy += std::exp(-surprise[id]) * surprise[id];
  }
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto distance = [&](size_t id) { return std::abs(surprise[id] - entropy); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return distance(a) < distance(b); });
  double cumulated = 0;
  size_t last = 0;
  while (last + 1 < order.size() && (cumulated += std::exp(-surprise[order[last]])) < mass) ++last;
  const double limit = distance(order[last]);
  for (size_t id = 0; id < scores.size(); ++id) {
    if (distance(id) > limit && id != order[0]) scores[id] = never;
  }
}

/// Tokens of the sequence become less likely: divided when positive, multiplied when negative (Keskar et al. 2019, CTRL).
void penalise_repetition(std::vector<float>& scores, double penalty, const History& history) {
  if (penalty == 1) return;
  std::vector<bool> done(scores.size());
  for (int32_t id : history.tokens) {
    const auto i = static_cast<size_t>(id);
    if (id < 0 || i >= scores.size() || done[i]) continue;
    done[i] = true;
    scores[i] = scores[i] < 0 ? scores[i] * static_cast<float>(penalty) : scores[i] / static_cast<float>(penalty);
  }
}

void penalise_presence(std::vector<float>& scores, const Sampling& sampling, const History& history) {
  if (sampling.presence_penalty == 0 && sampling.frequency_penalty == 0) return;
  std::vector<int64_t> counts(scores.size());
  for (int32_t id : history.tokens.subspan(std::min(history.prompt, history.tokens.size()))) {
    if (id >= 0 && static_cast<size_t>(id) < counts.size()) ++counts[static_cast<size_t>(id)];
  }
  for (size_t i = 0; i < scores.size(); ++i) {
    if (counts[i] > 0) scores[i] -= static_cast<float>(sampling.presence_penalty + sampling.frequency_penalty * static_cast<double>(counts[i]));
  }
}

/// Bans the tokens that would repeat one of the sequence's n-grams.
void ban_ngrams(std::vector<float>& scores, int64_t size, std::span<const int32_t> tokens) {
  const auto n = static_cast<size_t>(size);
  if (size <= 0 || tokens.size() + 1 < n) return;
  const auto prefix = tokens.subspan(tokens.size() - (n - 1));
  for (size_t i = 0; i + n <= tokens.size(); ++i) {
    if (std::equal(prefix.begin(), prefix.end(), tokens.begin() + static_cast<std::ptrdiff_t>(i))) scores[static_cast<size_t>(tokens[i + n - 1])] = never;
  }
}

void ban_words(std::vector<float>& scores, const Sampling& sampling, std::span<const int32_t> tokens) {
  const auto ends = [&](int32_t id) { return std::find(sampling.eos.begin(), sampling.eos.end(), id) != sampling.eos.end(); };
  for (const std::vector<int32_t>& word : sampling.bad_words) {
    if (word.empty() || (word.size() == 1 && ends(word[0]))) continue;
    const size_t before = word.size() - 1;
    const auto id = static_cast<size_t>(word.back());
    if (before > tokens.size() || id >= scores.size()) continue;
    if (std::equal(word.begin(), word.end() - 1, tokens.end() - static_cast<std::ptrdiff_t>(before))) scores[id] = never;
  }
}

}  // namespace

std::vector<float> processed(std::span<const float> logits, const Sampling& sampling, const History& history) {
  std::vector<float> scores(logits.begin(), logits.end());
  penalise_repetition(scores, sampling.repetition_penalty, history);
  penalise_presence(scores, sampling, history);
  ban_ngrams(scores, sampling.no_repeat_ngram_size, history.tokens);
  ban_words(scores, sampling, history.tokens);
  if (static_cast<int64_t>(history.tokens.size() - std::min(history.prompt, history.tokens.size())) < sampling.min_new_tokens) {
    for (int32_t id : sampling.eos)
      if (id >= 0 && static_cast<size_t>(id) < scores.size()) scores[static_cast<size_t>(id)] = never;
  }
  if (!sampling.do_sample) return scores;
  if (sampling.temperature != 1) {
    for (float& score : scores) score = static_cast<float>(score / sampling.temperature);
  }
  keep_top_k(scores, sampling.top_k);
  keep_top_p(scores, sampling.top_p);
  keep_min_p(scores, sampling.min_p);
  keep_typical(scores, sampling.typical_p);
  return scores;
}

int64_t choose(std::span<const float> logits, const Sampling& sampling, const History& history, double u) {
  const std::vector<float> scores = processed(logits, sampling, history);
  const auto best = std::max_element(scores.begin(), scores.end());
  if (!sampling.do_sample || *best == never) return best - scores.begin();   // everything banned: some token has to come
  double total = 0;
  for (float score : scores) total += std::exp(static_cast<double>(score) - *best);
  double cumulated = 0;
  int64_t last = 0;
  for (size_t id = 0; id < scores.size(); ++id) {
    if (scores[id] == never) continue;
    cumulated += std::exp(static_cast<double>(scores[id]) - *best) / total;
    last = static_cast<int64_t>(id);
    if (cumulated > u) break;
  }
  return last;
}

}  // namespace pm::engine
