// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "worker/engine/sampling/philox.h"

namespace pm::engine {

namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// Keeps the k highest scores and those equal to the k-th.
void keep_top_k(std::vector<float>& scores, int64_t k) {
  if (k <= 0 || k >= static_cast<int64_t>(scores.size())) return;
  std::vector<float> sorted = scores;
  std::nth_element(sorted.begin(), sorted.begin() + (k - 1), sorted.end(), std::greater<>());
  const float kth_score = sorted[static_cast<size_t>(k - 1)];
  for (float& score : scores)
    if (score < kth_score) score = minus_infinity;
}

/// Drops the tail whose probabilities, summed from the least likely up, stay within 1 - p. The `min_tokens_to_keep`
/// best always stay.
void keep_top_p(std::vector<float>& scores, double p, size_t min_tokens_to_keep) {
  if (p >= 1) return;
  const float best = *std::max_element(scores.begin(), scores.end());
  const auto weight = [&](size_t id) { return std::exp(static_cast<double>(scores[id]) - best); };
  std::vector<size_t> order;
  double total = 0;
  for (size_t id = 0; id < scores.size(); ++id) {
    if (scores[id] == minus_infinity) continue;
    order.push_back(id);
    total += weight(id);
  }
  // tokens whose total probability stays within the tail need no sorting
  const double negligible = (1 - p) / static_cast<double>(order.size()) * total;
  const auto large =
      std::stable_partition(order.begin(), order.end(), [&](size_t id) { return weight(id) < negligible; });
  const auto sorted = order.end() - large >= static_cast<std::ptrdiff_t>(min_tokens_to_keep) ? large : order.begin();
  std::stable_sort(sorted, order.end(), [&](size_t a, size_t b) { return scores[a] < scores[b]; });
  double tail = 0;
  for (auto id = order.begin();
       id != order.end() - static_cast<std::ptrdiff_t>(std::min(min_tokens_to_keep, order.size())); ++id) {
    tail += weight(*id) / total;
    if (id >= sorted && tail > 1 - p) return;
    scores[*id] = minus_infinity;
  }
}

/// Drops tokens less likely than `share` of the best. The `min_tokens_to_keep` best stay.
void keep_min_p(std::vector<float>& scores, double share, size_t min_tokens_to_keep) {
  if (share <= 0) return;
  std::vector<float> sorted = scores;
  std::nth_element(sorted.begin(),
                   sorted.begin() + static_cast<std::ptrdiff_t>(std::min(min_tokens_to_keep, sorted.size()) - 1),
                   sorted.end(), std::greater<>());
  const float last = sorted[std::min(min_tokens_to_keep, sorted.size()) - 1],
              best = *std::max_element(scores.begin(), scores.end());
  for (float& score : scores) {
    if (std::exp(static_cast<double>(score) - best) < share && score < last) score = minus_infinity;
  }
}

/// Locally typical sampling (Meister et al. 2022): keeps the tokens whose surprise is nearest to the entropy until
/// their probability reaches `mass`.
void keep_typical(std::vector<float>& scores, double mass, size_t min_tokens_to_keep) {
  if (mass >= 1) return;
  const float best = *std::max_element(scores.begin(), scores.end());
  double total = 0, entropy = 0;
  for (float score : scores) total += std::exp(static_cast<double>(score) - best);
  std::vector<double> surprise(scores.size());
  for (size_t id = 0; id < scores.size(); ++id) {
    surprise[id] = std::log(total) - (static_cast<double>(scores[id]) - best);
    if (scores[id] != minus_infinity) entropy += std::exp(-surprise[id]) * surprise[id];
  }
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto distance = [&](size_t id) { return std::abs(surprise[id] - entropy); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return distance(a) < distance(b); });
  double cumulated = 0;
  size_t last = 0;
  while (last + 1 < order.size() && (cumulated += std::exp(-surprise[order[last]])) < mass) ++last;
  const double limit = distance(order[last]);
  for (size_t i = min_tokens_to_keep; i < order.size(); ++i) {
    if (distance(order[i]) > limit) scores[order[i]] = minus_infinity;
  }
}

/// Score edits of a vocabulary with at most one edit per id.
class Edits {
 public:
  explicit Edits(size_t vocabulary) : at_(vocabulary, -1) {}
  std::vector<ops::ScoreEdit> all;
  /// Returns the edit of an id; nullptr outside the vocabulary.
  ops::ScoreEdit* of(int32_t id) {
    if (id < 0 || static_cast<size_t>(id) >= at_.size()) return nullptr;
    int32_t& at = at_[static_cast<size_t>(id)];
    if (at < 0) at = static_cast<int32_t>(all.size()), all.push_back({.id = id});
    return &all[static_cast<size_t>(at)];
  }
  void ban(int32_t id) {
    if (ops::ScoreEdit* edit = of(id)) edit->subtrahend = -minus_infinity;
  }

 private:
  std::vector<int32_t> at_;  ///< index in `all` for each id
};

/// Makes tokens of the sequence less likely: positive scores are divided, negative ones multiplied (Keskar et al. 2019,
/// CTRL).
void penalise_repetition(Edits& edits, double penalty, const History& history) {
  if (penalty == 1) return;
  for (int32_t id : history.tokens) {
    if (ops::ScoreEdit* edit = edits.of(id)) edit->factor = static_cast<float>(penalty);
  }
}

void penalise_presence(Edits& edits, const SamplingParams& sampling, const History& history) {
  if (sampling.presence_penalty == 0 && sampling.frequency_penalty == 0) return;
  std::map<int32_t, int64_t> counts;
  for (int32_t id : history.tokens.subspan(std::min(history.prompt, history.tokens.size()))) ++counts[id];
  for (const auto& [id, count] : counts) {
    if (ops::ScoreEdit* edit = edits.of(id))
      edit->subtrahend =
          static_cast<float>(sampling.presence_penalty + sampling.frequency_penalty * static_cast<double>(count));
  }
}

void add_bias(Edits& edits, const SamplingParams& sampling) {
  for (const auto& [id, bias] : sampling.logit_bias) {
    if (ops::ScoreEdit* edit = edits.of(id)) edit->subtrahend -= static_cast<float>(bias);
  }
}

/// Bans the tokens that would repeat an n-gram of the sequence.
void ban_ngrams(Edits& edits, int64_t size, std::span<const int32_t> tokens) {
  const auto n = static_cast<size_t>(size);
  if (size <= 0 || tokens.size() + 1 < n) return;
  const auto prefix = tokens.subspan(tokens.size() - (n - 1));
  for (size_t i = 0; i + n <= tokens.size(); ++i) {
    if (std::equal(prefix.begin(), prefix.end(), tokens.begin() + static_cast<std::ptrdiff_t>(i)))
      edits.ban(tokens[i + n - 1]);
  }
}

void ban_words(Edits& edits, const SamplingParams& sampling, std::span<const int32_t> tokens) {
  const auto ends = [&](int32_t id) {
    return std::find(sampling.eos.begin(), sampling.eos.end(), id) != sampling.eos.end();
  };
  for (const std::vector<int32_t>& word : sampling.bad_words) {
    if (word.empty() || (word.size() == 1 && ends(word[0]))) continue;
    const size_t before = word.size() - 1;
    if (before > tokens.size()) continue;
    if (std::equal(word.begin(), word.end() - 1, tokens.end() - static_cast<std::ptrdiff_t>(before)))
      edits.ban(word.back());
  }
}

void ban_suppressed(Edits& edits, const SamplingParams& sampling, const History& history) {
  for (const int32_t id : sampling.suppress_tokens) edits.ban(id);
  // as in transformers, a forced second token is no answer yet
  const size_t begin = history.prompt + (sampling.forced_bos >= 0 && history.prompt == 1 ? 1 : 0);
  if (history.tokens.size() == begin)
    for (const int32_t id : sampling.begin_suppress_tokens) edits.ban(id);
}

/// Excludes the ids before `first` where those from it on are together more probable than each of these. What scores
/// have in common, as the logarithm of a softmax has, does not matter.
void prefer_joint(std::vector<float>& scores, size_t first) {
  if (first == 0 || first >= scores.size()) return;
  const auto middle = scores.begin() + static_cast<std::ptrdiff_t>(first);
  const float best = *std::max_element(middle, scores.end()), rival = *std::max_element(scores.begin(), middle);
  if (best == minus_infinity) return;
  double total = 0;
  for (auto score = middle; score != scores.end(); ++score) total += std::exp(static_cast<double>(*score) - best);
  if (best + std::log(total) > rival) std::fill(scores.begin(), middle, minus_infinity);
}

void apply_mask(std::vector<float>& scores, const TokenMask& mask, const SamplingParams& sampling) {
  std::vector<std::pair<size_t, float>> ends;
  for (const int32_t id : sampling.eos)
    if (static_cast<size_t>(id) < scores.size()) ends.emplace_back(id, scores[static_cast<size_t>(id)]);
  for (size_t word = 0; word * 32 < scores.size(); ++word) {
    const uint32_t bits = word < mask.words.size() ? mask.words[word] : 0;
    if (bits == UINT32_MAX) continue;
    const size_t first = word * 32, count = std::min<size_t>(32, scores.size() - first);
    for (size_t i = 0; i < count; ++i)
      if ((bits >> i & 1) == 0) scores[first + i] = minus_infinity;
  }
  for (const auto& [id, score] : ends) scores[id] = mask.may_end ? score : minus_infinity;
  if (mask.joint_from >= 0) prefer_joint(scores, static_cast<size_t>(mask.joint_from));
}

}  // namespace

bool allowed(const TokenMask& mask, const SamplingParams& sampling, int64_t id) {
  const bool ends = std::find(sampling.eos.begin(), sampling.eos.end(), id) != sampling.eos.end();
  return ends ? mask.may_end : mask.allows(id);
}

std::vector<ops::ScoreEdit> score_edits(const SamplingParams& sampling, const History& history, size_t vocabulary) {
  if (!sampling.edits_scores()) return {};
  Edits edits(vocabulary);
  penalise_repetition(edits, sampling.repetition_penalty, history);
  penalise_presence(edits, sampling, history);
  add_bias(edits, sampling);
  ban_ngrams(edits, sampling.no_repeat_ngram_size, history.tokens);
  ban_words(edits, sampling, history.tokens);
  ban_suppressed(edits, sampling, history);
  if (static_cast<int64_t>(history.tokens.size() - std::min(history.prompt, history.tokens.size())) <
      sampling.min_new_tokens) {
    for (int32_t id : sampling.eos) edits.ban(id);
  }
  return std::move(edits.all);
}

bool supports_device_sampling(const SamplingParams& sampling, int64_t vocabulary) {
  return (!sampling.do_sample || sampling.typical_p >= 1) && vocabulary <= ops::max_sample_vocabulary;
}

std::vector<float> process_logits(std::span<const float> logits, const SamplingParams& sampling, const History& history,
                                  size_t min_tokens_to_keep, const TokenMask* mask) {
  std::vector<float> scores(logits.begin(), logits.end());
  for (const ops::ScoreEdit& edit : score_edits(sampling, history, scores.size())) {
    float& score = scores[static_cast<size_t>(edit.id)];
    score = (score < 0 ? score * edit.factor : score / edit.factor) - edit.subtrahend;
  }
  const auto length = static_cast<int64_t>(history.tokens.size());
  if (const int32_t forced = sampling.forced_token(length, length - static_cast<int64_t>(history.prompt));
      forced >= 0 && static_cast<size_t>(forced) < scores.size()) {
    std::fill(scores.begin(), scores.end(), minus_infinity);
    scores[static_cast<size_t>(forced)] = 0;
  }
  if (mask) apply_mask(scores, *mask, sampling);
  if (!sampling.do_sample) return scores;
  if (sampling.temperature != 1) {
    for (float& score : scores) score = static_cast<float>(score / sampling.temperature);
  }
  if (sampling.top_k > 0) keep_top_k(scores, std::max(sampling.top_k, static_cast<int64_t>(min_tokens_to_keep)));
  keep_top_p(scores, sampling.top_p, min_tokens_to_keep);
  keep_min_p(scores, sampling.min_p, min_tokens_to_keep);
  keep_typical(scores, sampling.typical_p, min_tokens_to_keep);
  return scores;
}

int64_t sample_token(std::span<const float> logits, const SamplingParams& sampling, const History& history, double u,
                     const TokenMask* mask) {
  const std::vector<float> scores = process_logits(logits, sampling, history, 1, mask);
  const auto best = std::max_element(scores.begin(), scores.end());
  if (!sampling.do_sample || *best == minus_infinity)
    return best - scores.begin();  // if every token is banned, the first one is returned
  double total = 0, cumulated = 0;
  std::vector<std::pair<int64_t, double>> weights;
  for (size_t id = 0; id < scores.size(); ++id) {
    if (scores[id] == minus_infinity) continue;
    weights.emplace_back(static_cast<int64_t>(id), std::exp(static_cast<double>(scores[id]) - *best));
    total += weights.back().second;
  }
  for (const auto& [id, weight] : weights) {
    if ((cumulated += weight / total) > u) return id;
  }
  return weights.back().first;
}

std::vector<float> log_softmax(std::span<const float> logits) {
  const float best = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit) - best);
  const auto shift = static_cast<float>(best + std::log(total));
  std::vector<float> result(logits.begin(), logits.end());
  for (float& value : result) value -= shift;
  return result;
}

Token token_with_logprobs(std::span<const float> logits, int32_t id, int64_t best) {
  const std::vector<float> logprobs = log_softmax(logits);
  Token token{id, logprobs[static_cast<size_t>(id)], {}};
  std::vector<int32_t> order(logprobs.size());
  std::iota(order.begin(), order.end(), 0);
  const auto count =
      static_cast<std::ptrdiff_t>(std::min<size_t>(static_cast<size_t>(std::max<int64_t>(best, 0)), order.size()));
  const auto better = [&](int32_t a, int32_t b) {
    const float x = logprobs[static_cast<size_t>(a)], y = logprobs[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + count, order.end(), better);
  for (std::ptrdiff_t i = 0; i < count; ++i)
    token.top_logprobs.emplace_back(order[static_cast<size_t>(i)],
                                    logprobs[static_cast<size_t>(order[static_cast<size_t>(i)])]);
  return token;
}

PromptToken scored_token(std::span<const float> logits, int32_t id, int64_t best) {
  const float own = logits[static_cast<size_t>(id)];
  const auto better = std::count_if(logits.begin(), logits.end(), [own](float logit) { return logit > own; });
  return {token_with_logprobs(logits, id, best), 1 + better};
}

std::vector<Candidate> beam_candidates(std::span<const float> logits, const SamplingParams& sampling,
                                       const History& history, const Beams& beams, const TokenMask* mask) {
  // with beams, transformers' warpers keep one token more than the number of end tokens
  const std::vector<float> scores =
      process_logits(log_softmax(logits), sampling, history, std::max<size_t>(2, sampling.eos.size() + 1), mask);
  const uint64_t position = history.tokens.size();
  std::vector<Candidate> all;
  all.reserve(scores.size() * beams.scores.size());
  for (size_t i = 0; i < beams.scores.size(); ++i) {
    const int64_t beam = beams.first + static_cast<int64_t>(i);
    for (size_t id = 0; id < scores.size(); ++id) {
      const float score = scores[id] + beams.scores[i];
      double sort_key = score;
      if (sampling.do_sample && score != minus_infinity) {
        const auto counter = static_cast<uint64_t>(beam) << 32 |
                             static_cast<uint64_t>(id + 1);  // + 1 keeps clear of the counters of plain sampling
        sort_key -= std::log(-std::log(uniform(sampling.seed, counter, position)));
      }
      all.push_back({beam, static_cast<int32_t>(id), score, sort_key});
    }
  }
  const auto count = static_cast<std::ptrdiff_t>(std::min(all.size(), static_cast<size_t>(beams.num_candidates)));
  std::partial_sort(all.begin(), all.begin() + count, all.end(), [](const Candidate& a, const Candidate& b) {
    return a.sort_key != b.sort_key ? a.sort_key > b.sort_key : a.beam != b.beam ? a.beam < b.beam : a.id < b.id;
  });
  all.resize(static_cast<size_t>(count));
  return all;
}

}  // namespace pm::engine
