// SPDX-License-Identifier: Apache-2.0
// Metrics under vLLM's names. Endpoint pickers, routers and autoscalers look for these.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace pm::server {

enum class MetricNames { Own, Vllm, Both };
/// Parses own, vllm or both.
std::optional<MetricNames> metric_names_of(std::string_view word);

/// Returns an exposition with the metrics that vLLM has under its names: in place of ours, or behind them. Their
/// meaning, type and buckets are ours; each has the label model_name, as in vLLM. Others stay as they are.
std::string renamed_metrics(const std::string& exposition, MetricNames names, const std::string& model);

}  // namespace pm::server
