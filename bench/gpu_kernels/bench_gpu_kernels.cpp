// SPDX-License-Identifier: Apache-2.0
// Measures each CUDA kernel alone and prints a line of JSON for each case: microseconds of a launch, and what share of
// a copy's bandwidth it reaches. It links the kernels and the CUDA runtime only. Every result is compared with fp64, so
// that a fast wrong kernel is noticed. tools/gpu/run.py runs it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>
#include <string_view>

#include "bench/gpu_kernels/case.h"

namespace pm::bench_gpu {

namespace {

constexpr const char* usage =
    "Usage: bench_gpu_kernels [--filter TEXT] [--list] [--once] [--small]\n"
    "  --filter TEXT  only cases whose name contains TEXT, or ends with it where TEXT ends with $\n"
    "  --list         print the names of the cases; needs no device\n"
    "  --once         launch each case once, without a CUDA graph, for a profiler\n"
    "  --small        small shapes, for the emulation\n";

struct Options {
  std::string filter;
  bool list = false, once = false, small = false;
};

bool matches(std::string_view name, std::string_view filter) {
  if (!filter.ends_with('$')) return name.find(filter) != std::string_view::npos;
  filter.remove_suffix(1);
  return name.ends_with(filter);
}

std::vector<Case> make_cases(const Options& options, const Device& device) {
  std::vector<Case> cases, last;
  add_gemv(cases, last, device, options.small);
  add_attention(cases, device, options.small);
  add_sample(cases, device, options.small);
  add_row_kernels(cases, device, options.small);
  std::move(last.begin(), last.end(), std::back_inserter(cases));
  std::erase_if(cases, [&](const Case& c) { return !matches(c.name, options.filter); });
  return cases;
}

/// Names have no characters that JSON escapes.
void print_case(const Case& c, double error, int64_t splits, const Timing* timing, double copy_rate) {
  std::printf("{\"figure\": \"%s\", \"error\": %.3g, \"right\": %s", c.name.c_str(), error < 1e30 ? error : 1e30,
              error <= c.tolerance ? "true" : "false");
  if (splits > 0) std::printf(", \"splits\": %lld", static_cast<long long>(splits));
  if (timing) {
    const double seconds = timing->us * 1e-6;
    std::printf(
        ", \"us\": %.3f, \"spread\": %.3f, \"launches\": %lld, \"bytes\": %.0f, \"GBps\": %.1f, "
        "\"of_copy\": %.4f",
        timing->us, timing->spread, static_cast<long long>(timing->launches), c.bytes, c.bytes / seconds * 1e-9,
        c.bytes / seconds / copy_rate);
    if (c.flops > 0) std::printf(", \"flops\": %.0f, \"Tflops\": %.3f", c.flops, c.flops / seconds * 1e-12);
  }
  std::printf("}\n");
  std::fflush(stdout);
}

/// Returns whether the results of the case are right.
bool run_case(const Case& c, const Options& options, double copy_rate) {
  try {
    const Prepared prepared = c.prepare();
    run(prepared.launch);
    const double error = prepared.error();
    if (options.once) {
      print_case(c, error, prepared.splits, nullptr, copy_rate);
    } else {
      const Timing timing = measure(prepared.launch);
      print_case(c, error, prepared.splits, &timing, copy_rate);
    }
    return error <= c.tolerance;
  } catch (const std::exception& failure) {
    std::string what = failure.what();
    std::replace_if(what.begin(), what.end(), [](char at) { return at == '"' || at == '\\' || at < ' '; }, ' ');
    std::printf("{\"figure\": \"%s\", \"right\": false, \"failed\": \"%s\"}\n", c.name.c_str(), what.c_str());
    std::fflush(stdout);
    return false;
  }
}

int run_all(const Options& options) {
  if (options.list) {
    for (const Case& c : make_cases(options, {})) std::printf("%s\n", c.name.c_str());
    return 0;
  }
  if (const std::string why = why_no_device(); !why.empty()) {
    std::printf("bench_gpu_kernels: skipped: %s\n", why.c_str());
    return 0;
  }
  if (options.small) use_few_numbers();
  const Device here = device();
  std::printf("{\"figure\": \"device\", \"name\": \"%s\", \"multiprocessors\": %lld, \"cache_bytes\": %lld}\n",
              here.name.c_str(), static_cast<long long>(here.multiprocessors),
              static_cast<long long>(here.cache_bytes));
  const double rate = options.once ? 1 : copy_rate(options.small ? 1 << 20 : int64_t{4} << 30);
  if (!options.once) std::printf("{\"figure\": \"copy\", \"GBps\": %.1f}\n", rate * 1e-9);
  int wrong = 0, count = 0;
  for (const Case& c : make_cases(options, here)) {
    ++count;
    wrong += run_case(c, options, rate) ? 0 : 1;
  }
  std::printf("{\"figure\": \"cases\", \"count\": %d, \"wrong\": %d}\n", count, wrong);
  return wrong > 0 ? 1 : 0;
}

}  // namespace

}  // namespace pm::bench_gpu

int main(int argc, char** argv) {
  pm::bench_gpu::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--filter" && i + 1 < argc) {
      options.filter = argv[++i];
    } else if (argument == "--list") {
      options.list = true;
    } else if (argument == "--once") {
      options.once = true;
    } else if (argument == "--small") {
      options.small = true;
    } else {
      std::fputs(pm::bench_gpu::usage, stderr);
      return 2;
    }
  }
  try {
    return pm::bench_gpu::run_all(options);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "bench_gpu_kernels: %s\n", failure.what());
    return 1;
  }
}
