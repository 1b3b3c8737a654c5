// See numbers.h.
#include "worker/server/numbers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string_view>

namespace pm::server {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

template <class T>
void append_numbers(std::string& to, std::span<const T> values) {
  to += '[';
  char text[32];
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) to += ',';
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(values[i])) {
        to += "null";
        continue;
      }
    }
    const auto end = std::to_chars(text, text + sizeof text, values[i]).ptr;
    to.append(text, end);
  }
  to += ']';
}

std::array<int8_t, 256> base64_values() {
  std::array<int8_t, 256> values;
  values.fill(-1);
  for (size_t i = 0; i < kAlphabet.size(); ++i) values[static_cast<uint8_t>(kAlphabet[i])] = static_cast<int8_t>(i);
  values['-'] = 62;
  values['_'] = 63;
  for (char space : {' ', '\n', '\r', '\t'}) values[static_cast<uint8_t>(space)] = -2;
  return values;
}

}  // namespace

std::vector<double> softmax(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  std::vector<double> scores;
  scores.reserve(logits.size());
  double sum = 0;
  for (float logit : logits) sum += scores.emplace_back(std::exp(static_cast<double>(logit) - most));
  for (double& score : scores) score /= sum;
  return scores;
}

double sigmoid(double logit) { return 1 / (1 + std::exp(-logit)); }

void normalize(std::span<float> vector) {
  double sum = 0;
  for (float value : vector) sum += static_cast<double>(value) * value;
  if (sum == 0) return;
  const double scale = 1 / std::sqrt(sum);
  for (float& value : vector) value = static_cast<float>(value * scale);
}

double cosine(std::span<const float> a, std::span<const float> b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return aa == 0 || bb == 0 ? 0 : ab / std::sqrt(aa * bb);
}

std::vector<size_t> largest(std::span<const double> scores, size_t n) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  n = std::min(n, order.size());
  const auto before = [&](size_t a, size_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; };
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(n), order.end(), before);
  order.resize(n);
  return order;
}

void append_json(std::string& to, std::span<const float> values) { append_numbers(to, values); }
void append_json(std::string& to, std::span<const int64_t> values) { append_numbers(to, values); }

std::string base64(std::span<const uint8_t> bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = std::min<size_t>(3, bytes.size() - i);
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k) three = three << 8 | (k < left ? bytes[i + k] : 0u);
    for (size_t k = 0; k < 4; ++k) text += k <= left ? kAlphabet[three >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

bool from_base64(std::string_view text, std::string& bytes) {
  static const auto values = base64_values();
  while (!text.empty() && (text.back() == '=' || values[static_cast<uint8_t>(text.back())] == -2)) text.remove_suffix(1);
  bytes.clear();
  bytes.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  int have = 0;
  for (char letter : text) {
    const int8_t value = values[static_cast<uint8_t>(letter)];
    if (value == -2) continue;
    if (value < 0) return false;
    bits = bits << 6 | static_cast<uint32_t>(value);
    have += 6;
    if (have < 8) continue;
    have -= 8;
    bytes += static_cast<char>(bits >> have & 255);
  }
  return have != 6;   // a lone letter holds no byte
}

}  // namespace pm::server
