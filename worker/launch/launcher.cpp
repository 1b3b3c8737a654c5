// SPDX-License-Identifier: Apache-2.0
// Implements the launcher as one loop: it polls the pidfds of the ranks and the signals, at least every 100 ms, then
// checks the status table and the clock.
#include "worker/launch/launcher.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "worker/base/error.h"
#include "worker/comm/communicator.h"
#include "worker/comm/wait/cpus.h"
#include "worker/launch/child.h"
#include "worker/launch/environment.h"
#include "worker/launch/failure.h"
#include "worker/launch/files.h"
#include "worker/launch/health.h"
#include "worker/launch/rendezvous.h"
#include "worker/launch/signal_queue.h"

#include "base/log.h"

namespace pm::launch {
namespace {

using Clock = std::chrono::steady_clock;

std::string rank_name(int r) { return "rank " + std::to_string(r); }

class Launcher {
 public:
  explicit Launcher(const Options& options)
      : options_(options),
        here_(options.local_slice()),
        signals_{SIGTERM, SIGINT, SIGHUP, SIGCHLD},
        files_(options.segment, options.ranks, options.bytes_per_rank),
        status_table_(files_.status_table()),
        watchdog_({options.heartbeat_timeout, options.hang_timeout, options.load_stall}, here_.first, here_.count),
        oom_kills_(comm::oom_kills()) {
    if (options.nodes.count > 1) others_.emplace(options.nodes, status_table_, options.heartbeat_timeout);
  }

  int run() {
    start_ranks();
    if (others_) others_->start();
    const AdminServer admin_server(options_, *status_table_);
    while (running() > 0 || awaits_root_cause()) {
      status_table_->launcher_heartbeat_ns() = std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
      wait_for_events();
      while (const auto signal = signals_.next()) on_signal(*signal);
      if (others_)
        for (const PeerEvent& one : others_->take_events()) on_peer_event(one);
      reap();
      watch(Clock::now());
    }
    return conclude();
  }

 private:
  struct AdminServer {
    AdminServer(const Options& options, comm::StatusTable& status_table)
        : options(options), status_table(status_table) {
      if (options.start_admin_server) options.start_admin_server(status_table);
    }
    ~AdminServer() {
      if (options.stop_admin_server) options.stop_admin_server(status_table);
    }
    AdminServer(const AdminServer&) = delete;
    AdminServer& operator=(const AdminServer&) = delete;
    const Options& options;
    comm::StatusTable& status_table;
  };

  void start_ranks() {
    const int threads = threads_per_rank(comm::available_cpus(), here_.count);
    const auto environment = rank_environment(own_environment(), threads);
    for (int i = 0; i < here_.count; ++i) {
      const int r = here_.first + i;
      ranks_.emplace_back(options_.arguments(r), environment, r != 0);
      status_table_->rank(r).pid = ranks_.back().pid();
    }
    LOG(INFO) << "started " << here_.count << " ranks of " << threads << " threads, segment " << options_.segment;
  }

  bool has_rank_0() const { return here_.first == 0; }
  /// Returns the reason that a rank wrote before it set `failed`.
  static Reason reason_of(const comm::RankStatus& rank) {
    return parse_reason({rank.reason, strnlen(rank.reason, sizeof rank.reason)}).value_or(Reason::RankLost);
  }

  /// Returns true while rank 0, on this node or another, takes requests.
  bool rank_0_serves() const {
    const comm::RankStatus& rank = status_table_->rank(0);
    const bool there = has_rank_0() ? ranks_[0].running() : rank.heartbeat_ns != 0;
    return there && rank.state == static_cast<uint32_t>(comm::RankState::Ready);
  }

  /// Returns true while all ranks of this node have ended only because others did, so that the cause may still arrive.
  bool awaits_root_cause() const {
    return others_ && others_->connected() && !killed_by_us_ && failing() &&
           cause_of(failures_).reason == Reason::CommunicatorAborted && Clock::now() < end_by_;
  }

  int running() const {
    return static_cast<int>(
        std::count_if(ranks_.begin(), ranks_.end(), [](const Child& rank) { return rank.running(); }));
  }

  void wait_for_events() {
    std::vector<pollfd> events{{signals_.descriptor(), POLLIN, 0}};
    if (others_) events.push_back({others_->descriptor(), POLLIN, 0});
    for (const Child& rank : ranks_)
      if (rank.running()) events.push_back({rank.descriptor(), POLLIN, 0});  // poll skips -1
    poll(events.data(), events.size(), 100);
  }

  void on_signal(int signal) {
    if (signal == SIGCHLD) return;  // reap() follows
    if (signalled_ || failing() || (others_ && !has_rank_0() && !others_->connected())) {
      LOG(WARNING) << "signal " << signal << (signalled_ ? " again" : "") << ": ending at once";
      cut_short_ = !failing();
      return kill_all();
    }
    signalled_ = true;
    stop(signal);
  }

  /// Starts the drain, at the first request by a signal or by another node.
  void stop(int signal) {
    if (interrupted_ || failing()) return;
    LOG(INFO) << "signal " << signal << ": rank 0 has " << options_.drain.count() << " ms to drain";
    interrupted_ = true;
    end_by_ = std::min(end_by_, Clock::now() + options_.drain);
    if (has_rank_0())
      ranks_[0].send(signal);
    else
      others_->request_stop();
  }

  void on_peer_event(const PeerEvent& event) {
    switch (event.kind) {
      case PeerEvent::Kind::Failed:
        return note(event.failure);
      case PeerEvent::Kind::Stop:
        return stop(SIGTERM);
      case PeerEvent::Kind::Left:
        break;
    }
    LOG(INFO) << "node " << event.node << " has left";
    const Slice theirs = partition(options_.ranks, options_.nodes.count, event.node);
    for (int r = theirs.first; r < theirs.first + theirs.count; ++r) status_table_->rank(r).heartbeat_ns = 0;
    if (failing()) return;
    if (event.node == 0)
      end_by_ = std::min(end_by_, Clock::now() + options_.drain);
    else if (!early_exit_)
      early_exit_ = EarlyExit{theirs.first, Clock::now() + options_.exit_grace};
  }

  void reap() {
    for (int i = 0; i < here_.count; ++i)
      if (ranks_[i].reap()) on_exit(i);
    int reaper = 0;
    prctl(PR_GET_CHILD_SUBREAPER, &reaper);
    if (getpid() != 1 && reaper == 0) return;
    for (int status = 0, pid = 0;
         (pid = waitpid(-1, &status, WNOHANG)) > 0;) {  // orphans of ranks are reparented to this process
      for (int i = 0; i < here_.count; ++i)
        if (ranks_[i].running() && ranks_[i].pid() == pid) ranks_[i].ended(status), on_exit(i);
    }
  }

  void on_exit(int i) {
    const int r = here_.first + i;
    const Exit exit = *ranks_[i].exit();
    comm::RankStatus& status = status_table_->rank(r);
    status.heartbeat_ns = 0;  // the rank is gone rather than frozen, and /ready fails from now on
    if (exit.signal == SIGKILL && killed_by_us_) return;
    if (exit.is_success()) {
      LOG(INFO) << rank_name(r) << " ended";
      if (!failing()) end_by_ = std::min(end_by_, Clock::now() + options_.drain);
      if (r != 0 && !early_exit_) early_exit_ = EarlyExit{r, Clock::now() + options_.exit_grace};
      return;
    }
    Failure failure{r, Reason::RankLost, rank_name(r) + " " + exit.text(), 5};
    if (exit.signal == 0) {
      failure.exit_code = exit.code;
      if (status.failed == 1) failure = {r, reason_of(status), status.message, exit.code};
    } else if (interrupted_ && r == 0 && (exit.signal == SIGTERM || exit.signal == SIGINT || exit.signal == SIGHUP)) {
      failure.reason = Reason::Interrupted, failure.exit_code = 6;
    } else if (exit.signal == SIGKILL && comm::oom_kills() > oom_kills_) {
      failure.reason = Reason::OOMKilled, failure.message += ": the memory limit of the container was reached";
    }
    fail(failure);
  }

  bool failing() const { return !failures_.empty(); }

  /// Records a failure of a rank of this node and reports it to the other nodes.
  void fail(const Failure& failure) {
    if (others_) others_->send_failure(failure);
    note(failure);
  }

  /// Records a failure and aborts the group. The surviving ranks have `exit_grace` to end by themselves.
  void note(const Failure& failure) {
    LOG(ERROR) << failure.reason << ": " << failure.message;
    status_table_->fail(failure.rank, failure.reason, failure.message, failure.exit_code);
    if (!failing()) {
      end_by_ = Clock::now() + options_.exit_grace;
      comm::abort_segment(options_.segment, name_of(failure.reason) + ": " + failure.message);
    }
    failures_.push_back(failure);
  }

  void watch(Time now) {
    if (now >= end_by_) return out_of_time();
    if (failing()) return;
    // A follower ends only after rank 0 has dismissed it; rank 0 then drains or is about to end itself.
    if (early_exit_ && now >= early_exit_->decide_at && rank_0_serves() && !interrupted_)
      return fail(
          {early_exit_->rank, Reason::RankLost, rank_name(early_exit_->rank) + " ended while rank 0 serves", 5});
    if (const auto stall = watchdog_.observe(*status_table_, now))
      fail({stall->rank, Reason::RankHung, stall->message, 5});
  }

  void out_of_time() {
    if (!failing() && !killed_by_us_) {
      if (interrupted_) {
        LOG(WARNING) << "not drained within " << options_.drain.count() << " ms: ending at once";
        cut_short_ = true;
      } else {
        const auto late = std::find_if(ranks_.begin(), ranks_.end(), [](const Child& rank) { return rank.running(); });
        const int r = here_.first + static_cast<int>(late - ranks_.begin());
        fail({r, Reason::RankHung,
              rank_name(r) + " did not end within " + std::to_string(options_.drain.count()) + " ms after the others",
              5});
      }
    }
    kill_all();
  }

  void kill_all() {
    killed_by_us_ = true;
    end_by_ = Clock::time_point::max();
    for (const Child& rank : ranks_) rank.send(SIGKILL);
  }

  int conclude() {
    if (failures_.empty() && cut_short_) {
      failures_.emplace_back(here_.first, Reason::Interrupted, "ended before all requests were answered", 6);
      if (others_) others_->send_failure(failures_.back());
    }
    if (failures_.empty()) return 0;
    const Failure& cause = cause_of(failures_);
    write_termination_message(options_.termination_message_path, cause);
    LOG(ERROR) << "the group ends: " << cause.reason << ": " << cause.message;
    return cause.exit_code;
  }

  struct EarlyExit {
    int rank;
    Time decide_at;
  };

  const Options& options_;
  const Slice here_;
  SignalQueue signals_;
  GroupFiles files_;
  std::shared_ptr<comm::StatusTable> status_table_;
  std::optional<Rendezvous> others_;  ///< only in a group over several nodes
  Watchdog watchdog_;
  const long oom_kills_;
  std::vector<Child> ranks_;  ///< ranks of this node, in order; declared after files_, so that they are killed first
  std::vector<Failure> failures_;
  std::optional<EarlyExit> early_exit_;
  bool interrupted_ = false, signalled_ = false, cut_short_ = false, killed_by_us_ = false;
  Time end_by_ = Time::max();
};

}  // namespace

int run(const Options& options) {
  if (options.ranks < 1)
    throw std::invalid_argument("a group of " + std::to_string(options.ranks) + " ranks; expected at least 1");
  if (!can_partition(options.ranks, options.nodes.count) || options.nodes.index < 0 ||
      options.nodes.index >= options.nodes.count)
    throw std::invalid_argument(std::to_string(options.ranks) + " ranks on node " +
                                std::to_string(options.nodes.index) + " of " + std::to_string(options.nodes.count));
  if (!options.arguments) throw std::invalid_argument("launch::Options without arguments");
  if (const int groups = remove_stale_groups(); groups > 0)
    LOG(INFO) << "removed the shared memory of " << groups << " killed groups";
  return Launcher(options).run();
}

}  // namespace pm::launch
