// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/rotary.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <tuple>

#include "worker/base/error.h"

namespace pm::layers {

namespace {

using nlohmann::json;

double number(const json& scaling, const char* key, std::optional<double> default_value = std::nullopt) {
  const auto found = scaling.find(key);
  if (found != scaling.end() && found->is_number()) return found->get<double>();
  if (default_value) return *default_value;
  throw Error(Reason::ModelUnreadable,
              "config.json's rope scaling " + scaling.dump() + " has no number \"" + key + "\"");
}

std::string kind_of(const json& scaling) {
  for (const char* key : {"rope_type", "type"}) {
    if (scaling.is_object() && scaling.contains(key) && scaling[key].is_string())
      return scaling[key].get<std::string>();
  }
  return "default";
}

/// Llama 3.1: scales long wavelengths, leaves short ones, and blends those between.
void llama3(const json& scaling, std::vector<double>& frequencies) {
  const double factor = number(scaling, "factor"), low = number(scaling, "low_freq_factor"),
               high = number(scaling, "high_freq_factor");
  const double trained = number(scaling, "original_max_position_embeddings");
  for (double& frequency : frequencies) {
    const double wavelength = 2 * std::numbers::pi / frequency;
    if (wavelength > trained / low)
      frequency /= factor;
    else if (wavelength >= trained / high) {
      const double smooth = (trained / wavelength - low) / (high - low);
      frequency = (1 - smooth) * frequency / factor + smooth * frequency;
    }
  }
}

/// YaRN (Peng et al. 2023): blends scaled and unscaled frequencies by a ramp. Returns the factor on the attention.
double yarn(const json& scaling, double theta, int64_t dims, std::vector<double>& frequencies) {
  const double factor = number(scaling, "factor"), trained = number(scaling, "original_max_position_embeddings");
  const auto dimension_of = [&](double turns) {  // the dimension that rotates `turns` times over the trained length
    return static_cast<double>(dims) * std::log(trained / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double low = dimension_of(number(scaling, "beta_fast", 32)), high = dimension_of(number(scaling, "beta_slow", 1));
  if (!scaling.contains("truncate") || scaling["truncate"] != false) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dims - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / factor * stretched + frequencies[i] * (1 - stretched);
  }
  const auto scale = [&](double m) { return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1; };
  if (scaling.contains("attention_factor") && scaling["attention_factor"].is_number())
    return number(scaling, "attention_factor");
  const double all = number(scaling, "mscale_all_dim", 0), some = number(scaling, "mscale", 0);
  return some != 0 && all != 0 ? scale(some) / scale(all) : scale(1);
}

/// Gemma 4: a share of the frequencies over the whole head turns, the others are 0 and leave their pairs as they are.
void proportional(const json& scaling, std::vector<double>& frequencies) {
  const double factor = number(scaling, "factor", 1), share = number(scaling, "partial_rotary_factor", 1);
  // transformers rounds down share x dims / 2 after multiplying by the dimensions
  const auto turning = static_cast<size_t>(std::floor(share * static_cast<double>(2 * frequencies.size()) / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] = i < turning ? frequencies[i] / factor : 0;
}

}  // namespace

Rotary::Rotary(const policy::Rotary& rotary, at::Device device)
    : style_(rotary.style), values_(rotary.values), long_rope_(rotary.long_rope), query_growth_(rotary.query_growth) {
  std::vector<double> frequencies;
  const bool own = rotary.axes && !rotary.axes->exponents.empty();
  for (int64_t i = 0; i < rotary.dims; i += 2) {
    const double exponent = own ? rotary.axes->exponents.at(static_cast<size_t>(i / 2))
                                : static_cast<double>(i) / static_cast<double>(rotary.dims);
    frequencies.push_back(1 / std::pow(rotary.theta, exponent));
  }
  if (rotary.axes) axis_of_frequency_ = at::tensor(rotary.axes->of_frequency, at::kLong).to(device);
  const std::string kind = kind_of(rotary.scaling);
  const auto on_device = [&](const std::vector<double>& all) {
    return at::tensor(all, at::kDouble).to(at::kFloat).to(device);
  };
  if (long_rope_) {
    std::vector<double> stretched = frequencies;
    for (size_t i = 0; i < frequencies.size(); ++i) stretched[i] /= long_rope_->long_factors[i];
    for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= long_rope_->short_factors[i];
    long_frequencies_ = on_device(stretched);
    factor_ = long_rope_->short_attention;
  } else if (kind == "linear") {
    for (double& frequency : frequencies) frequency /= number(rotary.scaling, "factor");
  } else if (kind == "llama3") {
    llama3(rotary.scaling, frequencies);
  } else if (kind == "yarn") {
    factor_ = yarn(rotary.scaling, rotary.theta, rotary.dims, frequencies);
  } else if (kind == "proportional") {
    proportional(rotary.scaling, frequencies);
  } else if (kind != "default" &&
             kind != "dynamic") {  // dynamic changes nothing within the positions that config.json states
    throw Error(Reason::UnknownArchitecture,
                "rope scaling of type \"" + kind +
                    "\" is not served; default, linear, dynamic, llama3, longrope, proportional and yarn are");
  }
  frequencies_ = on_device(frequencies);
}

ops::Angles Rotary::angles(const at::Tensor& positions, const at::Tensor& long_rows, const at::Tensor& axes) const {
  if (axis_of_frequency_.defined() && axes.defined()) {
    const at::Tensor turns = (at::index_select(axes, 1, axis_of_frequency_).to(at::kFloat) * frequencies_).unsqueeze(1);
    return {turns.cos().mul_(factor_), turns.sin().mul_(factor_)};
  }
  const ops::Angles usual = ops::rotary_angles(positions, frequencies_, factor_);
  if (!long_rope_) return usual;
  const ops::Angles stretched = ops::rotary_angles(positions, long_frequencies_, long_rope_->long_attention);
  at::Tensor is_long = positions.ge(long_rope_->original);
  if (long_rows.defined()) is_long = is_long.logical_or(long_rows);
  is_long = is_long.unsqueeze(1).unsqueeze(1);
  return {at::where(is_long, stretched.cos, usual.cos), at::where(is_long, stretched.sin, usual.sin)};
}

ops::Rotation Rotary::rotation(const at::Tensor& positions, const at::Tensor& long_rows, const at::Tensor& axes) const {
  ops::Rotation rotation{angles(positions, long_rows, axes), style_ == policy::RotaryStyle::Neox, values_, {}};
  if (query_growth_) {
    const at::Tensor times =
        at::floor_divide(positions + query_growth_->offset, query_growth_->original).to(at::kFloat);
    rotation.query_factors = (1 + query_growth_->beta * at::log1p(times)).unsqueeze(1).unsqueeze(1);
  }
  return rotation;
}

size_t RotaryTable::add(const policy::Rotary& rotary) {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(), [&](const policy::Rotary& other) {
    return std::tie(other.style, other.dims, other.theta, other.scaling, other.values, other.long_rope,
                    other.query_growth, other.axes) == std::tie(rotary.style, rotary.dims, rotary.theta, rotary.scaling,
                                                                rotary.values, rotary.long_rope, rotary.query_growth,
                                                                rotary.axes);
  });
  if (found != parameters_.end()) return static_cast<size_t>(found - parameters_.begin());
  rotaries_.emplace_back(rotary, device_);
  parameters_.push_back(rotary);
  return parameters_.size() - 1;
}

std::vector<ops::Rotation> RotaryTable::rotations(const at::Tensor& positions, const at::Tensor& long_rows,
                                                  const at::Tensor& axes) const {
  std::vector<ops::Rotation> rotations;
  for (const Rotary& rotary : rotaries_) rotations.push_back(rotary.rotation(positions, long_rows, axes));
  return rotations;
}

}  // namespace pm::layers
