// The verb serve: the launcher with the ops port, and per rank its share of the model; rank 0 also has the scheduler and the API.
#include <csignal>
#include <iostream>
#include <thread>

#include "worker/base/error.h"
#include "worker/cli/processes.h"
#include "worker/engine/scheduler.h"
#include "worker/launch/health.h"
#include "worker/ops/arena.h"
#include "worker/server/api_server.h"
#include "worker/server/ops_server.h"
#include "worker/tokenizer/tokenizer.h"
#include "worker/base/log.h"

namespace pm::cli {

namespace {

struct ServeOptions : ModelOptions {
  ProcessOptions process;
  std::string host = "0.0.0.0", name;
  int port = 8000, ops_port = 8001, drain_seconds = 60;
  int nodes = 1, node_rank = 0;
  std::string rendezvous;
  int64_t incarnation = 0, max_queue = 256;
};

/// One token through all ranks and back: from here on the group is known to work.
void probe(engine::Group& group) {
  engine::StepMessage message;
  message.entries.push_back({.slot = 0, .tokens = {0}, .blocks = {0}, .sample = group.leader().executor().has_logits()});
  group.run(message);
  engine::StepMessage after;
  after.freed = {0};
  group.run(after);
}

/// Waits for SIGTERM or SIGINT, or until the engine has failed. True for a signal.
bool wait_for_signal(const engine::Scheduler& scheduler) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  const timespec moment{0, 100'000'000};
  for (;;) {
    if (sigtimedwait(&set, nullptr, &moment) > 0) return true;
    if (scheduler.failed()) return false;
  }
}

void block_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

int lead(const ServeOptions& options, const Setup& setup, engine::Group& group) {
  const auto board = comm::StatusBoard::open(options.process.segment, setup.plan.tensor);
  comm::RankStatus& status = board->rank(0);
  probe(group);
  const policy::Stack& stack = setup.model.stacks[0];
  engine::Limits limits{stack.vocab, std::min(stack.positions, setup.plan.sequence_length), setup.plan.kv_blocks, options.max_concurrency, options.max_queue};
  engine::Scheduler scheduler(group.leader(), group.channels(), limits, [&](int64_t step, int64_t open) {
    status.steps = step;
    status.open_requests = open;
    status.measured[2] = ops::peak_bytes();
  });
  std::optional<Tokenizer> tokenizer;
  if (std::filesystem::exists(setup.checkpoint.folder() / "tokenizer.json")) tokenizer = Tokenizer::open(setup.checkpoint.folder());
  server::ApiOptions api;
  api.host = options.host;
  api.port = options.port;
  api.model = options.name.empty() ? setup.checkpoint.folder().filename().string() : options.name;
  server::ApiServer server(api, scheduler, tokenizer ? &*tokenizer : nullptr, setup.plan, board);
  server.start();
  status.state = static_cast<uint32_t>(comm::RankState::Ready);
  LOG(INFO) << "serving " << api.model << " on port " << server.bound_port() << " over " << setup.plan.tensor << " ranks";
  if (!wait_for_signal(scheduler)) {
    server.drain(std::chrono::seconds(1));
    throw Error(ErrorKind::RankLost, "CommunicatorAborted", scheduler.failure());
  }
  LOG(INFO) << "draining for at most " << options.drain_seconds << " s";
  status.state = static_cast<uint32_t>(comm::RankState::Draining);
  server.drain(std::chrono::seconds(options.drain_seconds));
  return 0;
}

}  // namespace

}  // namespace pm::cli
