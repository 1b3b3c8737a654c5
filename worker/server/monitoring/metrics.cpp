// SPDX-License-Identifier: Apache-2.0
#include "worker/server/monitoring/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "contract/kv_block.h"

namespace pm::server {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

const Buckets latency_buckets = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                 1,     2.5,    5,     10,   30,    60,   120, 300};

const Buckets step_buckets = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                              0.05,   0.1,     0.25,   0.5,   1,      2.5,   5,    10};
const Buckets gap_buckets = {0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.1, 1};
const Buckets token_buckets = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};

prometheus::Histogram& histogram(prometheus::Registry& registry, const char* name, const char* help,
                                 const Buckets& buckets = latency_buckets) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, buckets);
}

prometheus::Family<prometheus::Counter>& counters(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

/// A metric family for values that are stored elsewhere.
struct Family {
  prometheus::MetricFamily family;
  Family(const char* name, const char* help, prometheus::MetricType type) {
    family.name = name;
    family.help = help;
    family.type = type;
  }
  Family& add(double value, std::vector<std::pair<std::string, std::string>> labels = {}) {
    prometheus::ClientMetric metric;
    for (auto& [name, text] : labels) metric.label.push_back({name, text});
    metric.gauge.value = value;
    metric.counter.value = value;
    family.metric.push_back(std::move(metric));
    return *this;
  }
};

Family gauge(const char* name, const char* help) { return {name, help, prometheus::MetricType::Gauge}; }
Family counter(const char* name, const char* help) { return {name, help, prometheus::MetricType::Counter}; }

std::string serialize(const std::vector<Family>& families) {
  std::vector<prometheus::MetricFamily> list;
  for (const auto& one : families)
    if (!one.family.metric.empty()) list.push_back(one.family);
  return prometheus::TextSerializer().Serialize(list);
}

void add_memory(Family& family, int rank, const char* source, const Memory& memory) {
  const std::string r = std::to_string(rank);
  const std::pair<const char*, int64_t> kinds[] = {{"weights", memory.weights},
                                                   {"kv", memory.kv},
                                                   {"activations", memory.activations},
                                                   {"communicator", memory.communicator},
                                                   {"runtime", memory.runtime}};
  for (const auto& [kind, bytes] : kinds)
    family.add(static_cast<double>(bytes), {{"rank", r}, {"kind", kind}, {"source", source}});
}

void add_device_usage(Family& family, int rank, const comm::DeviceUsage<int64_t>& usage) {
  if (usage.total == 0) return;
  const std::string r = std::to_string(rank);
  const std::pair<const char*, int64_t> kinds[] = {{"total", usage.total},
                                                   {"free", usage.free},
                                                   {"reserved", usage.reserved},
                                                   {"allocated", usage.allocated},
                                                   {"communicator", usage.communicators}};
  for (const auto& [kind, bytes] : kinds) family.add(static_cast<double>(bytes), {{"rank", r}, {"kind", kind}});
}

/// Lines of one exposition, by family: "# HELP x", "# TYPE x" and the samples that follow.
std::string name_in_comment(const std::string& line) {
  for (const char* start : {"# HELP ", "# TYPE "})
    if (line.starts_with(start)) return line.substr(7, line.find(' ', 7) - 7);
  return {};
}

}  // namespace

struct RequestMetrics::Impl {
  prometheus::Registry registry;
  prometheus::Histogram& first_token = histogram(registry, "parallelmodel_time_to_first_token_seconds",
                                                 "Seconds from the arrival of a request to its first token");
  prometheus::Histogram& next_token =
      histogram(registry, "parallelmodel_inter_token_latency_seconds", "Seconds between two tokens of a sequence");
  prometheus::Histogram& request = histogram(registry, "parallelmodel_e2e_request_latency_seconds",
                                             "Seconds from the arrival of a request to its end");
  prometheus::Histogram& queue = histogram(registry, "parallelmodel_request_queue_time_seconds",
                                           "Seconds from submission to the first step that processes the request");
  prometheus::Histogram& prefill =
      histogram(registry, "parallelmodel_request_prefill_time_seconds",
                "Seconds from the first step that processes the request to its first token");
  prometheus::Family<prometheus::Counter>& finished =
      counters(registry, "parallelmodel_requests_finished_total", "Finished sequences, by reason");
  prometheus::Family<prometheus::Counter>& rejected =
      counters(registry, "parallelmodel_requests_rejected_total", "Rejected requests, by error code");
};

RequestMetrics::RequestMetrics() : impl_(std::make_unique<Impl>()) {
  for (const char* reason : {"stop", "length", "cancelled", "failed"}) impl_->finished.Add({{"reason", reason}});
  impl_->rejected.Add({{"reason", "queue_full"}});
}
RequestMetrics::~RequestMetrics() = default;

void RequestMetrics::queued(double seconds) { impl_->queue.Observe(seconds); }
void RequestMetrics::prefilled(double seconds) { impl_->prefill.Observe(seconds); }
void RequestMetrics::first_token(double seconds) { impl_->first_token.Observe(seconds); }
void RequestMetrics::next_token(double seconds) { impl_->next_token.Observe(seconds); }

void RequestMetrics::finished(const std::string& reason, double seconds) {
  impl_->finished.Add({{"reason", reason}}).Increment();
  impl_->request.Observe(seconds);
}

void RequestMetrics::rejected(const std::string& reason) { impl_->rejected.Add({{"reason", reason}}).Increment(); }

std::string RequestMetrics::text() const { return prometheus::TextSerializer().Serialize(impl_->registry.Collect()); }

struct StepMetrics::Impl {
  prometheus::Registry registry;
  prometheus::Histogram& step =
      histogram(registry, "parallelmodel_engine_step_seconds",
                "Seconds of an engine step, from its step message to its tokens", step_buckets);
  prometheus::Histogram& prefill =
      histogram(registry, "parallelmodel_engine_prefill_step_seconds",
                "Seconds of an engine step that includes prompt tokens (prefill)", step_buckets);
  prometheus::Histogram& gap =
      histogram(registry, "parallelmodel_engine_step_gap_seconds",
                "Seconds between two steps while requests are open: the time of scheduling and delivery", gap_buckets);
  prometheus::Histogram& tokens = histogram(registry, "parallelmodel_engine_step_tokens",
                                            "Tokens of an engine step, prefill and decode together", token_buckets);
};

StepMetrics::StepMetrics() : impl_(std::make_unique<Impl>()) {}
StepMetrics::~StepMetrics() = default;

void StepMetrics::observe(const engine::StepTimes& times) {
  impl_->step.Observe(times.seconds);
  if (times.prompt_tokens > 0) impl_->prefill.Observe(times.seconds);
  if (times.gap_seconds >= 0) impl_->gap.Observe(times.gap_seconds);
  impl_->tokens.Observe(static_cast<double>(times.tokens));
}

std::string StepMetrics::text() const { return prometheus::TextSerializer().Serialize(impl_->registry.Collect()); }

std::string engine_metrics(const engine::Statistics& s, const Capacity& capacity) {
  const auto d = [](int64_t value) { return static_cast<double>(value); };
  const auto share = [&](int64_t part, int64_t all) { return all > 0 ? d(part) / d(all) : 0; };
  const double kv_usage = share(s.kv_blocks_used, s.kv_blocks);
  auto cache = gauge("parallelmodel_cache_config_info", "Sizes of the KV cache in its labels; always 1");
  if (s.kv_blocks > 0)
    cache.add(1, {{"block_size", std::to_string(block_tokens)}, {"num_gpu_blocks", std::to_string(s.kv_blocks)}});
  return serialize({
      gauge("parallelmodel_saturation", "Largest of the shares of queue, KV cache and concurrency in use, 0 to 1")
          .add(std::max({share(s.waiting, capacity.queue), kv_usage, share(s.running, capacity.concurrency)})),
      cache,
      gauge("parallelmodel_num_requests_running", "Running sequences").add(d(s.running)),
      gauge("parallelmodel_num_requests_waiting", "Waiting sequences").add(d(s.waiting)),
      gauge("parallelmodel_kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1").add(kv_usage),
      gauge("parallelmodel_kv_cache_blocks", "KV blocks of a rank").add(d(s.kv_blocks)),
      counter("parallelmodel_prompt_tokens_total", "Prompt tokens processed").add(d(s.prompt_tokens)),
      counter("parallelmodel_generation_tokens_total", "Tokens generated").add(d(s.generation_tokens)),
      counter("parallelmodel_engine_steps_total", "Steps that all ranks did together").add(d(s.steps)),
      counter("parallelmodel_num_preemptions_total", "Requests that gave their KV blocks back and began again")
          .add(d(s.preempted)),
      counter("parallelmodel_prefix_cache_queries_total", "Prompt tokens that were looked up in kept KV blocks")
          .add(d(s.prefix_tokens)),
      counter("parallelmodel_prefix_cache_hits_total", "Prompt tokens that were found there")
          .add(d(s.prefix_hit_tokens)),
      counter("parallelmodel_spec_decode_num_drafts_total",
              "Drafts: steps of a sequence in which it had drafted tokens")
          .add(d(s.drafts)),
      counter("parallelmodel_spec_decode_num_draft_tokens_total", "Tokens that were drafted").add(d(s.draft_tokens)),
      counter("parallelmodel_spec_decode_num_accepted_tokens_total", "Drafted tokens that became tokens of an answer")
          .add(d(s.accepted_tokens)),
      counter("parallelmodel_spec_decode_pauses_total",
              "Times that a sequence stopped drafting for a while, because drafts did not pay")
          .add(d(s.draft_pauses)),
  });
}

std::string adapter_metrics(const std::vector<std::string>& in_use, int64_t slots,
                            std::chrono::system_clock::time_point now) {
  std::string names;
  for (const std::string& name : in_use) names += (names.empty() ? "" : ",") + name;
  const std::chrono::duration<double> seconds = now.time_since_epoch();
  return serialize({gauge("parallelmodel_lora_requests_info",
                          "LoRA adapters that requests have and the most that are loaded, in its labels; the time")
                        .add(seconds.count(), {{"max_lora", std::to_string(slots)},
                                               {"running_lora_adapters", names},
                                               {"waiting_lora_adapters", ""}})});
}

std::string image_metrics(int64_t queries, int64_t hits) {
  return serialize(
      {counter("parallelmodel_mm_cache_queries_total", "Images of prompts that were looked up among kept rows")
           .add(static_cast<double>(queries)),
       counter("parallelmodel_mm_cache_hits_total", "Images of prompts whose rows were found, so that no tower ran")
           .add(static_cast<double>(hits))});
}

std::string collective_metrics(const std::vector<Collective>& all) {
  auto calls =
      counter("parallelmodel_collective_calls_total", "Collective operations that rank 0 took part in, by operation");
  auto bytes = counter("parallelmodel_collective_bytes_total", "Bytes of the tensors of those operations");
  auto seconds = counter("parallelmodel_collective_seconds_total",
                         "Time that rank 0 spent in those operations, its waits for other ranks included");
  for (const Collective& one : all) {
    if (one.calls == 0) continue;
    calls.add(static_cast<double>(one.calls), {{"op", one.op}});
    bytes.add(static_cast<double>(one.bytes), {{"op", one.op}});
    seconds.add(one.seconds, {{"op", one.op}});
  }
  return serialize({calls, bytes, seconds});
}

std::string rank_metrics(const Plan& plan, comm::StatusTable* status_table, SteadyTime now) {
  auto memory =
      gauge("parallelmodel_rank_memory_bytes", "Bytes that a rank holds, by kind; predicted by the plan or measured");
  auto device =
      gauge("parallelmodel_rank_device_memory_bytes",
            "Memory of a rank's device: total and free for all processes; reserved and allocated by the rank; "
            "taken by its communicators");
  auto loaded = gauge("parallelmodel_rank_load_bytes", "Bytes of weights that a rank has read");
  auto total = gauge("parallelmodel_rank_load_total_bytes", "Bytes of weights that a rank must read");
  auto seconds = gauge("parallelmodel_rank_load_seconds", "Seconds that a rank took to load, or has loaded so far");
  auto steps = gauge("parallelmodel_rank_steps", "Engine steps that a rank has completed");
  auto beat = gauge("parallelmodel_rank_heartbeat_age_seconds", "Seconds since a rank's last heartbeat");
  auto state = gauge("parallelmodel_rank_state", "1 for the current state of a rank");
  for (const auto& rank : plan.ranks) add_memory(memory, rank.rank, "predicted", rank.predicted);
  for (int r = 0; status_table && r < status_table->size(); ++r) {
    const auto& rank = status_table->rank(r);
    const std::string label = std::to_string(r);
    add_memory(memory, r, "measured", measured(rank));
    add_device_usage(device, r, comm::snapshot(rank.device));
    loaded.add(static_cast<double>(rank.load_bytes), {{"rank", label}});
    total.add(static_cast<double>(rank.load_total), {{"rank", label}});
    seconds.add(static_cast<double>(rank.load_seconds_milli) * 1e-3, {{"rank", label}});
    steps.add(static_cast<double>(rank.steps), {{"rank", label}});
    if (const double age = heartbeat_age(rank, now); age >= 0) beat.add(age, {{"rank", label}});
    state.add(1, {{"rank", label}, {"state", std::string(name_of(state_of(rank)))}});
  }
  auto info = gauge("parallelmodel_plan_info", "The plan in its labels; always 1");
  std::vector<std::pair<std::string, std::string>> labels{
      {"strategy", std::string(name_of(plan.strategy))},   {"tensor", std::to_string(plan.tensor)},
      {"pipeline", std::to_string(plan.pipeline)},         {"data", std::to_string(plan.data)},
      {"precision", std::string(name_of(plan.precision))}, {"reason", plan.reason}};
  if (plan.kv_precision) labels.emplace_back("kv_precision", name_of(*plan.kv_precision));
  info.add(1, labels);
  return serialize({memory, device, loaded, total, seconds, steps, beat, state, info});
}

std::string merge_metrics(const std::string& own, const std::string& other) {
  std::set<std::string> names;
  const auto for_lines = [](const std::string& text, const auto& each) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      each(text.substr(at, end - at));
      at = end + 1;
    }
  };
  for_lines(own, [&](const std::string& line) {
    if (auto name = name_in_comment(line); !name.empty()) names.insert(std::move(name));
  });
  std::string merged = own;
  bool is_duplicate = false;
  for_lines(other, [&](const std::string& line) {
    if (const auto name = name_in_comment(line); !name.empty()) is_duplicate = names.contains(name);
    if (!is_duplicate && !line.empty()) merged += line + "\n";
  });
  return merged;
}

}  // namespace pm::server
