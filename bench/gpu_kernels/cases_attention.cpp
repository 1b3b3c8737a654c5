// SPDX-License-Identifier: Apache-2.0
// Cases of attention: single queries and prompts against the paged cache, in bf16, with scattered blocks.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "bench/gpu_kernels/case.h"
#include "worker/ops/cuda/attention.h"

namespace pm::bench_gpu {

namespace {

using ops::cuda::DecodeAttention;
using ops::cuda::PrefillAttention;

struct Heads {
  int64_t heads, kv_heads, d;
  std::string name() const {
    return std::to_string(heads) + "/" + std::to_string(kv_heads) + " heads of " + std::to_string(d);
  }
};

/// Keys and values of `sequences` sequences of `tokens` tokens each, `sets` times, in blocks of a random order.
struct Cache {
  Heads heads;
  int64_t sequences, blocks_each;  ///< KV blocks of a sequence
  Array k, v;
  Table<int32_t> tables;  ///< [sets, sequences, blocks_each]

  Cache(const Heads& h, int64_t count, int64_t tokens, int64_t sets)
      : heads(h),
        sequences(count),
        blocks_each((tokens + block_tokens - 1) / block_tokens),
        k(sets * count * blocks_each * block_elements(), Element::BF16, 101),
        v(sets * count * blocks_each * block_elements(), Element::BF16, 50'021),
        tables(shuffled(sets * count * blocks_each)) {}
  int64_t block_elements() const { return heads.kv_heads * block_tokens * heads.d; }
  const int32_t* set(int64_t number) const { return tables.data() + number * sequences * blocks_each; }
  /// Returns the place of a key's or value's first element, of set 0.
  int64_t at(int64_t sequence, int64_t token, int64_t kv_head) const {
    const int64_t block = tables[sequence * blocks_each + token / block_tokens];
    return block * block_elements() + (kv_head * block_tokens + token % block_tokens) * heads.d;
  }

 private:
  static std::vector<int32_t> shuffled(int64_t count) {
    std::vector<int32_t> order(static_cast<size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(5));
    return order;
  }
};

double scale_of(int64_t d) { return 1 / std::sqrt(static_cast<double>(d)); }

/// Adds the error of one head's result for a query that sees the first `keys` keys of a sequence. `query` is the place
/// of the head's first element in q.
void add_error(Error& all, const Cache& cache, int64_t sequence, int64_t head, const Array& q, int64_t query,
               int64_t keys, const std::vector<double>& got) {
  const int64_t d = cache.heads.d, kv_head = head / (cache.heads.heads / cache.heads.kv_heads);
  const std::vector<double> wanted = q.read(query, d);
  std::vector<double> weights, expected(static_cast<size_t>(d));
  double total = 0;
  for (int64_t key = 0; key < keys; ++key) {
    const std::vector<double> k = cache.k.read(cache.at(sequence, key, kv_head), d);
    weights.push_back(std::inner_product(k.begin(), k.end(), wanted.begin(), 0.0) * scale_of(d));
  }
  const double largest = *std::max_element(weights.begin(), weights.end());
  for (double& weight : weights) total += weight = std::exp(weight - largest);
  for (int64_t key = 0; key < keys; ++key) {
    const std::vector<double> v = cache.v.read(cache.at(sequence, key, kv_head), d);
    const double share = weights[static_cast<size_t>(key)] / total;
    for (size_t i = 0; i < v.size(); ++i) expected[i] += share * v[i];
  }
  for (size_t i = 0; i < expected.size(); ++i) all.add(got[i], expected[i]);
}

/// `splits` 0: as many as the worker would use.
Case decode_case(const Heads& h, int64_t sequences, int64_t keys, int64_t splits, const Device& device) {
  Case made;
  made.name = "decode bf16 " + h.name() + ", " + std::to_string(sequences) + " x " + std::to_string(keys) + " keys" +
              (splits > 0 ? ", " + std::to_string(splits) + (splits == 1 ? " split" : " splits") : "");
  made.bytes = static_cast<double>(sequences * (keys * h.kv_heads * h.d * 2 * 2 + h.heads * h.d * 2 * 4));
  made.flops = 4 * static_cast<double>(sequences * h.heads * h.d * keys);
  made.tolerance = 1e-4;  // queries and softmax weights may be rounded to two bf16 numbers each
  const int64_t sets = sets_for(made.bytes, device.cache_bytes), multiprocessors = device.multiprocessors;
  made.prepare = [=]() -> Prepared {
    const auto cache = std::make_shared<const Cache>(h, sequences, keys, sets);
    const Array q(sequences * h.heads * h.d, Element::F32, 17);
    const Result out(sequences * h.heads * h.d, Element::F32);
    const Table<int32_t> lengths(std::vector<int32_t>(static_cast<size_t>(sequences), static_cast<int32_t>(keys)));
    DecodeAttention p{.q = q.data(),
                      .q_stride = h.heads * h.d,
                      .out = out.data(),
                      .k_cache = cache->k.data(),
                      .v_cache = cache->v.data(),
                      .block_stride = cache->block_elements(),
                      .cache = Element::BF16,
                      .tables = nullptr,
                      .table_stride = cache->blocks_each,
                      .keys = lengths.data(),
                      .sequences = sequences,
                      .heads = h.heads,
                      .kv_heads = h.kv_heads,
                      .d = h.d};
    p.splits = splits > 0 ? splits : ops::cuda::decode_splits(p, keys, multiprocessors);
    p.scores.scale = static_cast<float>(scale_of(h.d));
    const Result parts(std::max<int64_t>(ops::cuda::decode_parts(p), 1), Element::F32);
    p.parts = static_cast<float*>(parts.data());
    // The buffers live as long as the function that names them.
    const Launch launch = [=, held = std::tuple(q, out, lengths, parts)](int64_t set, Stream stream) {
      DecodeAttention now = p;
      now.tables = cache->set(set % sets);
      ops::cuda::decode_attention(now, stream);
    };
    const auto error = [=] {
      Error all;
      for (const int64_t sequence : std::set{int64_t{0}, sequences - 1}) {
        for (const int64_t head : {int64_t{0}, h.heads - 1}) {
          const int64_t place = (sequence * h.heads + head) * h.d;
          add_error(all, *cache, sequence, head, q, place, keys, out.read(place, h.d));
        }
      }
      return all.relative();
    };
    return {launch, error, p.splits};
  };
  return made;
}

/// Launches in which each split reads the fewest keys that it gets, eight KV blocks: what starting a split and
/// combining the splits costs.
Case combine_case(const Heads& h, int64_t sequences, int64_t splits, const Device& device) {
  Case made = decode_case(h, sequences, 128 * splits, splits, device);
  made.name = "decode and combine of 128 keys a split, " + h.name() + ", " + std::to_string(sequences) + " x " +
              std::to_string(splits) + " splits";
  made.bytes = static_cast<double>(2 * sequences * h.heads * splits * (h.d + 2) * 4);
  made.flops = 0;
  return made;
}

/// A prompt of `tokens` tokens after `context` earlier ones.
Case prefill_case(const Heads& h, int64_t tokens, int64_t context, const Device& device) {
  Case made;
  made.name = "prefill bf16 " + h.name() + ", " + std::to_string(tokens) + " tokens" +
              (context > 0 ? " after " + std::to_string(context) : "");
  const int64_t keys = context + tokens;
  made.bytes = static_cast<double>(keys * h.kv_heads * h.d * 2 * 2 + tokens * h.heads * h.d * 2 * 2);
  made.flops = 4 * static_cast<double>(h.heads * h.d) * static_cast<double>(tokens) *
               (static_cast<double>(context) + static_cast<double>(tokens + 1) / 2);
  made.tolerance = 1e-2;  // softmax weights and results are rounded to bf16
  const int64_t sets = sets_for(made.bytes, device.cache_bytes);
  made.prepare = [=]() -> Prepared {
    const auto cache = std::make_shared<const Cache>(h, 1, keys, sets);
    const Array q(tokens * h.heads * h.d, Element::BF16, 17);
    const Result out(tokens * h.heads * h.d, Element::BF16);
    const auto one = [](int64_t value) { return Table<int32_t>(std::vector{static_cast<int32_t>(value)}); };
    const Table<int32_t> first = one(0), lengths = one(tokens), contexts = one(context), all_keys = one(keys);
    PrefillAttention p{.q = q.data(),
                       .q_stride = h.heads * h.d,
                       .out = out.data(),
                       .type = Element::BF16,
                       .out_type = Element::BF16,
                       .k = cache->k.data(),
                       .v = cache->v.data(),
                       .keys_type = Element::BF16,
                       .k_stride = cache->block_elements(),
                       .tables = nullptr,
                       .table_stride = cache->blocks_each,
                       .first = first.data(),
                       .tokens = lengths.data(),
                       .contexts = contexts.data(),
                       .keys = all_keys.data(),
                       .sequences = 1,
                       .max_tokens = tokens,
                       .heads = h.heads,
                       .kv_heads = h.kv_heads,
                       .d = h.d};
    p.scores.scale = static_cast<float>(scale_of(h.d));
    const Launch launch = [=, held = std::tuple(q, out, first, lengths, contexts, all_keys)](int64_t set,
                                                                                             Stream stream) {
      PrefillAttention now = p;
      now.tables = cache->set(set % sets);
      ops::cuda::prefill_attention(now, stream);
    };
    const auto error = [=] {
      Error all;
      for (const int64_t token : {int64_t{0}, tokens / 2, tokens - 1}) {
        for (const int64_t head : {int64_t{0}, h.heads - 1}) {
          const int64_t place = (token * h.heads + head) * h.d;
          add_error(all, *cache, 0, head, q, place, context + token + 1, out.read(place, h.d));
        }
      }
      return all.relative();
    };
    return {launch, error};
  };
  return made;
}

/// The copy of a prompt's keys and values to adjacent rows, which FlashAttention of PyTorch needs in each layer.
Case gather_case(const Heads& h, int64_t keys, const Device& device) {
  Case made;
  made.name = "gather bf16 " + std::to_string(h.kv_heads) + " kv heads of " + std::to_string(h.d) + ", " +
              std::to_string(keys) + " keys";
  made.bytes = static_cast<double>(keys * h.kv_heads * h.d * 2 * 2 * 2);  // keys and values, read and written
  const int64_t sets = sets_for(made.bytes, device.cache_bytes), row = h.kv_heads * h.d;
  made.prepare = [=]() -> Prepared {
    const auto cache = std::make_shared<const Cache>(h, 1, keys, sets);
    const Result k(keys * row, Element::BF16), v(keys * row, Element::BF16);
    const Table<int32_t> starts(std::vector{0, static_cast<int32_t>(keys)});
    const ops::cuda::GatherKv p{.k_cache = cache->k.data(),
                                .v_cache = cache->v.data(),
                                .block_stride = cache->block_elements(),
                                .table_stride = cache->blocks_each,
                                .starts = starts.data(),
                                .k = k.data(),
                                .v = v.data(),
                                .sequences = 1,
                                .max_keys = keys,
                                .kv_heads = h.kv_heads,
                                .d = h.d};
    const Launch launch = [=, held = std::tuple(k, v, starts)](int64_t set, Stream stream) {
      ops::cuda::GatherKv now = p;
      now.tables = cache->set(set % sets);
      ops::cuda::gather_kv(now, stream);
    };
    const auto error = [=] {
      Error all;
      for (const int64_t key : {int64_t{0}, keys / 2, keys - 1}) {
        for (const int64_t head : {int64_t{0}, h.kv_heads - 1}) {
          const int64_t from = cache->at(0, key, head), to = key * row + head * h.d;
          const std::vector<double> k_from = cache->k.read(from, h.d), v_from = cache->v.read(from, h.d),
                                    k_to = k.read(to, h.d), v_to = v.read(to, h.d);
          for (size_t i = 0; i < k_from.size(); ++i) all.add(k_to[i], k_from[i]), all.add(v_to[i], v_from[i]);
        }
      }
      return all.relative();
    };
    return {launch, error};
  };
  return made;
}

}  // namespace

void add_attention(std::vector<Case>& cases, const Device& device, bool small) {
  if (small) {
    const Heads few{4, 2, 16};
    for (const int64_t splits : {0, 1, 3}) cases.push_back(decode_case(few, 2, 70, splits, device));
    cases.push_back(combine_case(few, 2, 3, device));
    cases.push_back(prefill_case(few, 20, 0, device));
    cases.push_back(prefill_case(few, 5, 18, device));
    cases.push_back(gather_case(few, 37, device));
    return;
  }
  const Heads of_8b{32, 8, 128}, of_70b{64, 8, 128};
  for (const int64_t sequences : {1, 8, 64}) {
    for (const int64_t keys : {256, 1024, 2048, 8192, 32768, 131072}) {
      if (sequences * keys > int64_t{64} * 8192) continue;  // 2 GiB of keys and values
      cases.push_back(decode_case(of_8b, sequences, keys, 0, device));
      cases.push_back(decode_case(of_70b, sequences, keys, 0, device));
    }
  }
  for (const auto& [tokens, context] : {std::pair{512, 0}, {2048, 0}, {8192, 0}, {32768, 0}, {512, 8192}, {2048, 8192}})
    cases.push_back(prefill_case(of_8b, tokens, context, device));
  for (const int64_t keys : {512, 2048, 8192, 32768}) cases.push_back(gather_case(of_8b, keys, device));
  for (const auto& [sequences, keys] : {std::pair{1, 1024}, {1, 8192}, {1, 131072}, {8, 8192}, {64, 2048}}) {
    for (const int64_t splits : {1, 2, 4, 8, 16, 32, 64, 128}) {
      if (splits <= keys / 128) cases.push_back(decode_case(of_8b, sequences, keys, splits, device));
    }
  }
  for (const int64_t splits : {2, 8, 32, 64}) cases.push_back(combine_case(of_8b, 1, splits, device));
}

}  // namespace pm::bench_gpu
