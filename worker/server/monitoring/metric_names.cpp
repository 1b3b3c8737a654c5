// SPDX-License-Identifier: Apache-2.0
#include "worker/server/monitoring/metric_names.h"

#include <algorithm>
#include <array>

namespace pm::server {

namespace {

struct Name {
  std::string_view own, vllm;
};

constexpr std::string_view finished = "parallelmodel_requests_finished_total";
constexpr std::array names{
    Name{"parallelmodel_num_requests_running", "vllm:num_requests_running"},
    Name{"parallelmodel_num_requests_waiting", "vllm:num_requests_waiting"},
    Name{"parallelmodel_kv_cache_usage_perc", "vllm:kv_cache_usage_perc"},
    Name{"parallelmodel_cache_config_info", "vllm:cache_config_info"},
    Name{"parallelmodel_lora_requests_info", "vllm:lora_requests_info"},
    Name{"parallelmodel_num_preemptions_total", "vllm:num_preemptions_total"},
    Name{"parallelmodel_prefix_cache_queries_total", "vllm:prefix_cache_queries_total"},
    Name{"parallelmodel_prefix_cache_hits_total", "vllm:prefix_cache_hits_total"},
    Name{"parallelmodel_mm_cache_queries_total", "vllm:mm_cache_queries_total"},
    Name{"parallelmodel_mm_cache_hits_total", "vllm:mm_cache_hits_total"},
    Name{"parallelmodel_spec_decode_num_drafts_total", "vllm:spec_decode_num_drafts_total"},
    Name{"parallelmodel_spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_draft_tokens_total"},
    Name{"parallelmodel_spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"},
    Name{"parallelmodel_prompt_tokens_total", "vllm:prompt_tokens_total"},
    Name{"parallelmodel_generation_tokens_total", "vllm:generation_tokens_total"},
    Name{finished, "vllm:request_success_total"},
    Name{"parallelmodel_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"},
    Name{"parallelmodel_inter_token_latency_seconds", "vllm:inter_token_latency_seconds"},
    Name{"parallelmodel_e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds"},
    Name{"parallelmodel_request_queue_time_seconds", "vllm:request_queue_time_seconds"},
    Name{"parallelmodel_request_prefill_time_seconds", "vllm:request_prefill_time_seconds"},
};

/// vLLM's words for how a request ended.
constexpr std::array reasons{
    Name{"reason=\"cancelled\"", "finished_reason=\"abort\""}, Name{"reason=\"failed\"", "finished_reason=\"error\""},
    Name{"reason=\"stop\"", "finished_reason=\"stop\""}, Name{"reason=\"length\"", "finished_reason=\"length\""}};

std::string label_value(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n')
      out += "\\n";
    else
      out.append(c == '\\' || c == '"' ? "\\" : "").push_back(c);
  }
  return out;
}

/// Rewrites the lines of a family: "# HELP x ...", "# TYPE x ...", "x{a="b"} 1", "x_sum 1".
class Renamer {
 public:
  explicit Renamer(const std::string& model) : label_("model_name=\"" + label_value(model) + "\"") {}

  /// Appends the line under vLLM's name and returns true if vLLM has the family that it belongs to.
  bool append(std::string_view line, std::string& out) {
    const bool comment = line.starts_with("# ");
    if (comment) family_ = find(line.substr(7, line.find(' ', 7) - 7));
    if (!family_) return false;
    if (comment) {
      out.append(line.substr(0, 7)).append(family_->vllm).append(line.substr(7 + family_->own.size()));
    } else {
      const std::string_view rest = line.substr(family_->own.size());  // a suffix, labels and the value
      const size_t name_end = rest.find_first_of("{ ");
      const bool labelled = rest[name_end] == '{';
      out.append(family_->vllm).append(rest.substr(0, name_end)).append("{").append(label_);
      if (labelled) append_labels(rest.substr(name_end + 1), out);
      if (!labelled) out.append("}").append(rest.substr(name_end));
    }
    out += '\n';
    return true;
  }

 private:
  static const Name* find(std::string_view own) {
    const auto found = std::find_if(names.begin(), names.end(), [&](const Name& name) { return name.own == own; });
    return found == names.end() ? nullptr : &*found;
  }

  void append_labels(std::string_view labels, std::string& out) const {
    out += ',';
    if (family_->own == finished) {
      for (const Name& reason : reasons) {
        if (!labels.starts_with(reason.own)) continue;
        out.append(reason.vllm).append(labels.substr(reason.own.size()));
        return;
      }
    }
    out.append(labels);
  }

  const std::string label_;
  const Name* family_ = nullptr;
};

}  // namespace

std::optional<MetricNames> metric_names_of(std::string_view word) {
  if (word == "own") return MetricNames::Own;
  if (word == "vllm") return MetricNames::Vllm;
  if (word == "both") return MetricNames::Both;
  return std::nullopt;
}

std::string renamed_metrics(const std::string& exposition, MetricNames wanted, const std::string& model) {
  if (wanted == MetricNames::Own) return exposition;
  std::string own, renamed;
  Renamer renamer(model);
  for (size_t at = 0; at < exposition.size();) {
    const size_t end = std::min(exposition.find('\n', at), exposition.size());
    const std::string_view line = std::string_view(exposition).substr(at, end - at);
    const bool has_both = !line.empty() && renamer.append(line, renamed);
    if (!line.empty() && (wanted == MetricNames::Both || !has_both)) own.append(line) += '\n';
    at = end + 1;
  }
  return own + renamed;
}

}  // namespace pm::server
