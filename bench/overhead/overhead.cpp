// SPDX-License-Identifier: Apache-2.0
// Measures the overhead of HTTP and the engine per token: the real scheduler and server over real sockets, with a model
// that computes nothing. Three measurements, each containing the one before it: the engine alone; with threads that
// wait for its events; with HTTP, tokens made text.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <latch>
#include <string>
#include <thread>

#include "bench/overhead/client.h"
#include "bench/overhead/null_executor.h"
#include "worker/engine/scheduling/scheduler.h"
#include "worker/server/api_server.h"
#include "worker/server/generation/generation.h"

#include "base/log.h"

namespace pm::bench {
namespace {

constexpr int64_t rounds = 7, window = 4096, clients_at_most = 64;

/// Microseconds per token: wall-clock time of the best and the median round, and CPU time of all threads of this
/// process.
struct Cost {
  double wall = 0, median = 0, cpu = 0;
};

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Returns the costs over rounds of `run`, which returns seconds for `tokens` tokens, after one warm-up round.
Cost cost_of(int64_t tokens, const std::function<double()>& run) {
  run();
  std::vector<double> wall, cpu;
  for (int64_t round = 0; round < rounds; ++round) {
    const double before = cpu_seconds();
    wall.push_back(run() * 1e6 / static_cast<double>(tokens));
    cpu.push_back((cpu_seconds() - before) * 1e6 / static_cast<double>(tokens));
  }
  std::sort(wall.begin(), wall.end());
  std::sort(cpu.begin(), cpu.end());
  return {wall[0], wall[rounds / 2], cpu[rounds / 2]};
}

double timed(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

engine::Request request_of(int64_t number, int64_t tokens) {
  engine::Request request;
  request.id = "bench-" + std::to_string(number);
  request.prompt = {1, 2, 3, 4, 5, 6, 7, 8};
  request.max_new_tokens = tokens;
  request.ignore_eos = true;
  return request;
}

void engine_alone(engine::Engine& engine, int64_t clients, int64_t tokens) {
  std::latch ended(clients);
  for (int64_t i = 0; i < clients; ++i) {
    engine.submit(request_of(i, tokens), [&](const engine::Event& event) {
      if (event.finish != engine::Finish::None) ended.count_down();
    });
  }
  ended.wait();
}

void with_events(engine::Engine& engine, int64_t clients, int64_t tokens) {
  std::vector<std::jthread> threads;
  for (int64_t i = 0; i < clients; ++i) {
    threads.emplace_back([&, i] {
      server::Generation generation(engine, {request_of(i, tokens)});
      while (!generation.done()) generation.wait(std::chrono::seconds(1));
    });
  }
}

/// Runs the clients in a process of their own, so that their CPU time is not counted.
double over_http(const char* program, const Asked& asked) {
  const std::string command = std::string(program) + " client " + std::to_string(asked.port) + " " +
                              std::to_string(asked.clients) + " " + std::to_string(asked.tokens) + " " +
                              (asked.stream ? "1" : "0");
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  double seconds = 0;
  if (!pipe || std::fscanf(pipe.get(), "%lf", &seconds) != 1)
    throw std::runtime_error("the clients failed: " + command);
  return seconds;
}

void print_row(int64_t clients, const Cost& engine, const Cost& events, const Cost& stream, const Cost& whole) {
  std::printf("%7lld %8.1f %8.1f %8.1f %8.1f (%5.1f) %8.1f (%5.1f) %12.1f %10.1f\n", static_cast<long long>(clients),
              engine.wall, events.wall - engine.wall, stream.wall - events.wall, stream.wall, stream.median, whole.wall,
              whole.median, stream.cpu, whole.cpu);
}

int measure(const char* program, const std::string& tokenizer_folder, int64_t tokens) {
  std::string why;
  const auto tokenizer = Tokenizer::find(tokenizer_folder, &why);
  if (!tokenizer) throw std::runtime_error(tokenizer_folder + ": " + why);
  constexpr int64_t vocabulary = 1000;
  engine::Rank rank(null_executor(vocabulary));
  engine::Limits limits{.vocabulary = vocabulary,
                        .positions = window,
                        .kv_blocks = clients_at_most * window / block_tokens,
                        .max_concurrency = clients_at_most};
  engine::Scheduler scheduler(rank, {}, limits);
  server::ApiOptions options;
  options.http.host = "127.0.0.1";
  options.http.port = 0;
  options.names = {"null"};
  Plan plan;
  plan.sequence_length = window;
  server::ApiServer server(options, scheduler, &*tokenizer, plan);
  server.start();
  std::printf(
      "us per token, %lld tokens a reply: best of %lld rounds (and median); CPU: of all threads of the server, "
      "median\n",
      static_cast<long long>(tokens), static_cast<long long>(rounds));
  std::printf("%7s %8s %8s %8s %16s %16s %12s %10s\n", "clients", "engine", "+events", "+HTTP", "= streams", "whole",
              "CPU streams", "CPU whole");
  for (const int64_t clients : {int64_t{1}, int64_t{8}, clients_at_most}) {
    const int64_t all = clients * tokens;
    const Cost engine = cost_of(all, [&] { return timed([&] { engine_alone(scheduler, clients, tokens); }); });
    const Cost events = cost_of(all, [&] { return timed([&] { with_events(scheduler, clients, tokens); }); });
    const auto http = [&](bool stream) {
      return cost_of(all, [&] { return over_http(program, {server.bound_port(), clients, tokens, stream}); });
    };
    print_row(clients, engine, events, http(true), http(false));
  }
  server.stop();
  return 0;
}

}  // namespace
}  // namespace pm::bench

int main(int argc, char** argv) {
  using namespace pm::bench;
  try {
    if (argc == 6 && std::string(argv[1]) == "client") {
      std::printf("%.9f\n", ask({std::atoi(argv[2]), std::atoll(argv[3]), std::atoll(argv[4]), argv[5][0] == '1'}));
      return 0;
    }
    if (argc < 2 || argc > 3) {
      std::cerr << "usage: bench_overhead FOLDER_WITH_TOKENIZER [TOKENS_OF_A_REPLY=512]\n";
      return 2;
    }
    pm::base::start_logging(argv[0]);
    return measure(argv[0], argv[1], argc == 3 ? std::atoll(argv[2]) : 512);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
