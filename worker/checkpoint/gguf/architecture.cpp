// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/gguf/architecture.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "worker/base/error.h"
#include "worker/checkpoint/random_access_file.h"

namespace pm::checkpoint {

namespace {

using nlohmann::json;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// Returns the number of the layer where `name` fits a pattern with one "{l}"; -1 where it does not. A pattern without
/// "{l}" fits itself, as layer 0.
int64_t layer_of(std::string_view name, std::string_view pattern) {
  const size_t at = pattern.find("{l}");
  if (at == std::string_view::npos) return name == pattern ? 0 : -1;
  const std::string_view before = pattern.substr(0, at), after = pattern.substr(at + 3);
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after)) return -1;
  const std::string_view digits = name.substr(before.size(), name.size() - before.size() - after.size());
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), layer);
  const bool canonical = digits == "0" || digits.front() != '0';
  return error == std::errc() && end == digits.data() + digits.size() && canonical ? layer : -1;
}

std::string with_layer(std::string text, int64_t layer) {
  if (const size_t at = text.find("{l}"); at != std::string::npos) text.replace(at, 3, std::to_string(layer));
  return text;
}

/// Returns a x b or a / b: a whole number where both are and the result is one, null where b is 0.
json combined(const json& a, char sign, const json& b) {
  if (sign == '/' && b.get<double>() == 0) return {};
  if (a.is_number_integer() && b.is_number_integer()) {
    const int64_t left = a.get<int64_t>(), right = b.get<int64_t>();
    int64_t product = 0;
    if (sign == '*' && !__builtin_mul_overflow(left, right, &product)) return product;
    if (sign == '/' && left % right == 0) return left / right;
  }
  return sign == '*' ? a.get<double>() * b.get<double>() : a.get<double>() / b.get<double>();
}

bool is_positive(const json& value) { return value.is_number() && value.get<double>() > 0; }

}  // namespace

GgufArchitecture::GgufArchitecture(const json& metadata, const std::string& file) : metadata_(metadata), file_(file) {
  const auto found = metadata.find("general.architecture");
  if (found == metadata.end() || !found->is_string()) refuse("has no general.architecture, which names its model");
  architecture_ = found->get<std::string>();
  std::set<std::string> known;
  for (const GgufTable& one : gguf_tables()) {
    json table = json::parse(one.text);
    known.insert(table.at("architecture"));
    if (table.at("architecture") != architecture_) continue;
    // a table with a condition comes before the one without
    const auto when = table.find("when");
    if (when == table.end() ? !json_.is_null() : !is_positive(value(when->get<std::string>()))) continue;
    table_ = one.name;
    json_ = std::move(table);
  }
  if (!json_.is_null()) return;
  std::string all;
  for (const std::string& name : known) all += (all.empty() ? "" : ", ") + name;
  throw Error(Reason::UnknownArchitecture,
              file_ + ": the GGUF file has the general.architecture \"" + printable(architecture_) +
                  "\", for which there is no table; there are " + all +
                  ". Convert it once with transformers, or take the checkpoint that it was made from");
}

void GgufArchitecture::refuse(const std::string& what) const {
  throw Error(Reason::ModelUnreadable, file_ + ": " + printable(what));
}

json GgufArchitecture::value(std::string_view key) const {
  const auto found = metadata_.find(architecture_ + "." + std::string(key));
  if (found == metadata_.end()) return {};
  if (!found->is_array()) return *found;
  // some files state a number for each layer although it is the same
  const bool same = !found->empty() &&
                    std::all_of(found->begin(), found->end(), [&](const json& one) { return one == found->front(); });
  if (!same)
    refuse("the metadata " + architecture_ + "." + std::string(key) +
           " differs between layers, which the table policies/gguf/" + table_ + ".json does not describe");
  return found->front();
}

json GgufArchitecture::atom(std::string_view text, const std::vector<GgufTensor>& tensors) const {
  text = trimmed(text);
  for (const std::string_view call : {"rows(", "has("}) {
    if (!text.starts_with(call)) continue;
    const std::string_view name = text.substr(call.size(), text.size() - call.size() - 1);
    const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const auto& one) { return one.name == name; });
    if (call == "has(") return found != tensors.end();
    return found == tensors.end() ? json() : json(found->shape.front());
  }
  if (text.front() == '\'') return std::string(text.substr(1, text.size() - 2));
  if (text == "null") return {};
  if (text == "true" || text == "false") return text == "true";
  if (text.front() == '-' || (text.front() >= '0' && text.front() <= '9')) return json::parse(text);
  return value(text);
}

/// Evaluates atoms with a * b, a / b and, after these, a ?? b. What has no value makes none.
json GgufArchitecture::evaluate(std::string_view expression, const std::vector<GgufTensor>& tensors) const {
  if (const size_t at = expression.find("??"); at != std::string_view::npos) {
    json first = evaluate(expression.substr(0, at), tensors);
    return first.is_null() ? evaluate(expression.substr(at + 2), tensors) : first;
  }
  const size_t at = expression.find_last_of("*/");
  if (at == std::string_view::npos) return atom(expression, tensors);
  const json a = evaluate(expression.substr(0, at), tensors), b = atom(expression.substr(at + 1), tensors);
  return a.is_number() && b.is_number() ? combined(a, expression[at], b) : json();
}

/// Evaluates a value of `config`: an expression, a list of cases of which the first that holds is taken, or a constant.
json GgufArchitecture::entry(const json& found, const std::vector<GgufTensor>& tensors) const {
  if (found.is_string()) return evaluate(found.get<std::string>(), tensors);
  if (!found.is_array()) return found;
  for (const json& one : found) {
    if (!one.is_object()) return entry(one, tensors);
    bool holds = true;
    for (const auto& [key, wanted] : one.at("if").items()) holds = holds && value(key) == wanted;
    if (holds) return entry(one.at("then"), tensors);
  }
  return {};
}

json GgufArchitecture::config(const std::vector<GgufTensor>& tensors) const {
  json out = {{"model_type", json_.at("model_type")}, {"architectures", json_.at("classes")}};
  for (const auto& [key, expression] : json_.at("config").items()) {
    const json found = entry(expression, tensors);
    if (!found.is_null())
      out[key] = found;
    else if (!expression.is_string() || !expression.get<std::string>().ends_with("?? null"))
      refuse("lacks the metadata " + architecture_ + "." +
             (expression.is_string() ? expression.get<std::string>() : key) + ", from which policies/gguf/" + table_ +
             ".json takes " + key + " of config.json");
  }
  return out;
}

std::optional<GgufTarget> GgufArchitecture::target(const std::string& tensor) const {
  for (const json& pattern : json_.value("ignore", json::array()))
    if (layer_of(tensor, pattern.get<std::string>()) >= 0) return std::nullopt;
  const size_t dot = tensor.rfind('.');
  const std::string module = tensor.substr(0, dot), part = dot == std::string::npos ? "" : tensor.substr(dot);
  for (const auto& [pattern, row] : json_.at("tensors").items()) {
    const int64_t layer = part == ".weight" || part == ".bias" ? layer_of(module, pattern) : -1;
    if (layer < 0) continue;
    if (row.is_string()) return GgufTarget{with_layer(row.get<std::string>(), layer) + part};
    GgufTarget made{with_layer(row.at("name").get<std::string>(), layer) + part};
    made.addend = part == ".weight" ? row.value("add", 0.0f) : 0;
    made.one_row = row.value("one_row", false);
    made.transposed = part == ".weight" && row.value("transposed", false);
    if (const auto heads = row.find("pairs_of"); heads != row.end()) {
      const json count = evaluate(heads->get<std::string>(), {});
      if (!count.is_number_integer() || count.get<int64_t>() < 1)
        refuse("lacks the metadata " + architecture_ + "." + heads->get<std::string>() + ", the heads of tensor \"" +
               tensor + "\"");
      made.pair_heads = count.get<int64_t>();
    }
    return made;
  }
  refuse("tensor \"" + tensor + "\" is none that policies/gguf/" + table_ +
         ".json knows, so that the model would not be read whole");
}

}  // namespace pm::checkpoint
