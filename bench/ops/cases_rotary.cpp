// SPDX-License-Identifier: Apache-2.0
// Cases of rotary embedding and of writes to the KV cache, for heads as in an 8B model (32 and 8 of 128, GPT-NeoX
// pairs) and as in GPT-J (16 of 256, of which 64 elements are rotated).
#include <ATen/ATen.h>

#include "bench/ops/case.h"
#include "tests/unit/worker/ops/reference.h"

namespace pm::bench {

namespace {

constexpr double fp32_tolerance = 5e-6, norm_eps = 1e-6;

struct HeadShape {
  int64_t heads, kv_heads, d, n;  ///< 2 n elements of each head are rotated
  bool is_neox;
};
constexpr HeadShape llama{32, 8, 128, 64, true}, gptj{16, 16, 256, 32, false};

std::string shape_name(int64_t tokens, const HeadShape& s) {
  return std::to_string(tokens) + (tokens == 1 ? " token, " : " tokens, ") + std::to_string(s.heads) + "/" +
         std::to_string(s.kv_heads) + " heads of " + std::to_string(s.d);
}

at::Tensor frequencies(int64_t n) { return at::pow(10000., -at::arange(n, at::kFloat) / static_cast<double>(n)); }
at::Tensor positions(int64_t tokens) { return at::randint(0, 8192, {tokens}, at::kLong); }

/// Returns distinct slots of a cache, in random order.
at::Tensor random_slots(int64_t tokens, int64_t blocks) {
  return at::randperm(blocks * block_tokens, at::kLong).narrow(0, 0, tokens).clone();
}
int64_t cache_blocks(int64_t tokens) { return 2 * (tokens / block_tokens + 1); }

/// Returns a cache in fp64 that holds `rows` [tokens, kv_heads, d] at their slots and zeros elsewhere.
at::Tensor expected_cache(const at::Tensor& rows, const at::Tensor& slots, int64_t blocks) {
  at::Tensor flat = at::zeros({blocks * block_tokens, rows.size(1), rows.size(2)}, at::kDouble);
  flat.index_copy_(0, slots, rows.to(at::kDouble));
  return flat.reshape({blocks, block_tokens, rows.size(1), rows.size(2)}).permute({0, 2, 1, 3}).contiguous();
}

/// Returns an empty cache of keys or values.
at::Tensor empty_cache(int64_t blocks, const HeadShape& s, at::ScalarType type, at::Device device) {
  return at::zeros({blocks, s.kv_heads, block_tokens, s.d}, at::TensorOptions(type).device(device));
}

}  // namespace

std::vector<Case> rotary_angles_cases() {
  std::vector<Case> cases;
  for (int64_t tokens : {1, 32, 512}) {
    Case one{.name = std::to_string(tokens) + " x 64", .tolerance = fp32_tolerance};
    one.bytes = 8. * static_cast<double>(tokens * 64);
    one.make = [tokens]() -> Problem {
      const at::Tensor position = positions(tokens), frequency = frequencies(64);
      const auto expected = [=]() -> Outputs {
        const at::Tensor angle = (position.to(at::kFloat).unsqueeze(1) * frequency).to(at::kDouble).unsqueeze(1);
        return {1.25 * at::cos(angle), 1.25 * at::sin(angle)};
      };
      const auto on = [=](at::Device device) -> Run {
        return [position = position.to(device), frequency = frequency.to(device)](const ops::Backend& backend,
                                                                                  const Call&) -> Outputs {
          const ops::Angles angles = backend.rotary_angles(position, frequency, 1.25);
          return {angles.cos, angles.sin};
        };
      };
      return {expected, on};
    };
    cases.push_back(std::move(one));
  }
  return cases;
}

std::vector<Case> rotate_cases() {
  std::vector<Case> cases;
  for (const HeadShape& shape : {llama, gptj}) {
    for (int64_t tokens : {1, 32, 512}) {
      Case one{.name = shape_name(tokens, shape) + (shape.is_neox ? "" : ", GPT-J pairs"),
               .tolerance = fp32_tolerance,
               .bytes = 8. * static_cast<double>(tokens * shape.heads * shape.d)};
      one.make = [=]() -> Problem {
        const at::Tensor x = at::randn({tokens, shape.heads, shape.d}), position = positions(tokens),
                         frequency = frequencies(shape.n);
        const auto expected = [=]() -> Outputs {
          return {ops::reference::rotate(x, position, frequency, shape.is_neox, 1)};
        };
        const auto on = [=](at::Device device) -> Run {
          const ops::Angles angles = ops::Backend().rotary_angles(position.to(device), frequency.to(device), 1);
          return [there = x.to(device), angles, shape](const ops::Backend& backend, const Call&) -> Outputs {
            return {backend.rotate(there, angles, shape.is_neox)};
          };
        };
        return {expected, on};
      };
      cases.push_back(std::move(one));
    }
  }
  return cases;
}

std::vector<Case> write_kv_cases() {
  std::vector<Case> cases;
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (int64_t tokens : {1, 32, 512}) {
      Case one{.name = std::string(type_name(type)) + ", " + shape_name(tokens, llama), .tolerance = 0};
      one.bytes =
          static_cast<double>(2 * tokens * llama.kv_heads * llama.d) * static_cast<double>(4 + c10::elementSize(type));
      one.make = [=]() -> Problem {
        const int64_t blocks = cache_blocks(tokens);
        const at::Tensor k = at::randn({tokens, llama.kv_heads, llama.d}), v = at::randn_like(k),
                         slots = random_slots(tokens, blocks);
        const auto expected = [=]() -> Outputs {
          return {expected_cache(k.to(type), slots, blocks), expected_cache(v.to(type), slots, blocks)};
        };
        const auto on = [=](at::Device device) -> Run {
          return
              [k = k.to(device), v = v.to(device), slots = slots.to(device),
               k_cache = empty_cache(blocks, llama, type, device), v_cache = empty_cache(blocks, llama, type, device)](
                  const ops::Backend& backend, const Call& call) -> Outputs {
                at::Tensor keys = call.keep_inputs ? k_cache.clone() : k_cache,
                           values = call.keep_inputs ? v_cache.clone() : v_cache;
                backend.write_kv(k, v, slots, keys, values);
                return {keys, values};
              };
        };
        return {expected, on};
      };
      cases.push_back(std::move(one));
    }
  }
  return cases;
}

std::vector<Case> rotary_write_cases() {
  std::vector<Case> cases;
  const auto add = [&](const HeadShape& shape, at::ScalarType type, int64_t tokens, bool rotate_values,
                       bool norms = false) {
    Case one{.name = std::string(type_name(type)) + ", " + shape_name(tokens, shape) +
                     (shape.is_neox ? "" : ", GPT-J pairs") + (rotate_values ? ", values too" : "") +
                     (norms ? ", RMSNorm of heads" : ""),
             .tolerance = fp32_tolerance + rounding_error(type)};
    one.bytes = static_cast<double>(tokens * shape.d) *
                (8. * static_cast<double>(shape.heads) +
                 2. * static_cast<double>(shape.kv_heads) * static_cast<double>(4 + c10::elementSize(type)));
    one.make = [=]() -> Problem {
      const int64_t blocks = cache_blocks(tokens), heads = shape.heads, kv_heads = shape.kv_heads, d = shape.d;
      const at::Tensor qkv = at::randn({tokens, (heads + 2 * kv_heads) * d}), position = positions(tokens),
                       frequency = frequencies(shape.n), slots = random_slots(tokens, blocks);
      const at::Tensor weight = norms ? at::rand({d}) + 0.5 : at::Tensor();
      const auto expected = [=]() -> Outputs {
        const at::Tensor all = qkv.reshape({tokens, heads + 2 * kv_heads, d}), wide = all.to(at::kDouble);
        const at::Tensor normed =
            norms ? wide * at::rsqrt(wide.square().mean(2, true) + norm_eps) * weight.to(at::kDouble) : wide;
        const at::Tensor rotated = ops::reference::rotate(normed, position, frequency, shape.is_neox, 1);
        const at::Tensor values =
            (rotate_values ? ops::reference::rotate(wide, position, frequency, shape.is_neox, 1) : all)
                .narrow(1, heads + kv_heads, kv_heads);
        return {rotated.narrow(1, 0, heads), expected_cache(rotated.narrow(1, heads, kv_heads), slots, blocks),
                expected_cache(values, slots, blocks)};
      };
      const auto on = [=](at::Device device) -> Run {
        const ops::Rotation rotation{ops::Backend().rotary_angles(position.to(device), frequency.to(device), 1),
                                     shape.is_neox, rotate_values};
        const ops::HeadNorm norm{.weight = norms ? weight.to(device) : weight, .bias = {}, .eps = norm_eps};
        const ops::HeadNorms of_heads = norms ? ops::HeadNorms{norm, norm} : ops::HeadNorms{};
        return [=, there = qkv.to(device), slots = slots.to(device), k_cache = empty_cache(blocks, shape, type, device),
                v_cache = empty_cache(blocks, shape, type, device)](const ops::Backend& backend,
                                                                    const Call& call) -> Outputs {
          at::Tensor keys = call.keep_inputs ? k_cache.clone() : k_cache,
                     values = call.keep_inputs ? v_cache.clone() : v_cache;
          const at::Tensor q = backend.rotary_write(there, heads, of_heads, rotation, slots, keys, values);
          return {q, keys, values};
        };
      };
      return {expected, on};
    };
    cases.push_back(std::move(one));
  };
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (int64_t tokens : {1, 32, 512}) add(llama, type, tokens, false);
  }
  add(gptj, at::kFloat, 32, false);
  add(gptj, at::kFloat, 32, true);
  for (int64_t tokens : {1, 32}) add(llama, at::kBFloat16, tokens, false, true);
  return cases;
}

}  // namespace pm::bench
