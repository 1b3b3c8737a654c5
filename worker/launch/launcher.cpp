// See launcher.h. One loop: poll the ranks' pidfds and the signals, at least every 100 ms, then look at the board and the clock.
#include "worker/launch/launcher.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "worker/base/error.h"
#include "worker/comm/communicator.h"
#include "worker/comm/cpus.h"
#include "worker/launch/child.h"
#include "worker/launch/environment.h"
#include "worker/launch/failure.h"
#include "worker/launch/files.h"
#include "worker/launch/health.h"
#include "worker/launch/rendezvous.h"
#include "worker/launch/signals.h"
#include "worker/base/log.h"

namespace pm::launch {
namespace {

using Clock = std::chrono::steady_clock;

std::string rank_name(int r) { return "rank " + std::to_string(r); }

class Launcher {
 public:
  explicit Launcher(const Options& options)
      : options_(options), here_(options.here()), signals_{SIGTERM, SIGINT, SIGHUP, SIGCHLD}, files_(options.segment, options.ranks, options.bytes_per_rank),
        board_(files_.board()), watchdog_({options.frozen, options.hang_timeout, options.load_stall}, here_.first, here_.count), oom_kills_(comm::oom_kills()) {
    if (options.nodes.count > 1) others_.emplace(options.nodes, board_, options.frozen);
  }

  int run() {
    start_ranks();
    if (others_) others_->start();
    const OpsServer ops(options_, *board_);
    while (running() > 0 || hopes_for_the_cause()) {
      board_->launcher_ns() = std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
      wait_for_news();
      while (const auto signal = signals_.next()) on_signal(*signal);
      if (others_)
        for (const News& one : others_->news()) on_news(one);
      reap();
      watch(Clock::now());
    }
    return conclude();
  }

 private:
  struct OpsServer {
    OpsServer(const Options& options, comm::StatusBoard& board) : options(options), board(board) {
      if (options.start_ops) options.start_ops(board);
    }
    ~OpsServer() {
      if (options.stop_ops) options.stop_ops(board);
    }
    OpsServer(const OpsServer&) = delete;
    OpsServer& operator=(const OpsServer&) = delete;
    const Options& options;
    comm::StatusBoard& board;
  };

  void start_ranks() {
    const int threads = threads_per_rank(comm::available_cpus(), here_.count);
    const auto environment = rank_environment(own_environment(), threads);
    for (int i = 0; i < here_.count; ++i) {
      const int r = here_.first + i;
      ranks_.emplace_back(options_.arguments(r), environment, r != 0);
      board_->rank(r).pid = ranks_.back().pid();
    }
    LOG(INFO) << "started " << here_.count << " ranks of " << threads << " threads, segment " << options_.segment;
  }

  bool has_rank_0() const { return here_.first == 0; }
  /// Whether rank 0, here or on another node, takes requests.
  bool rank_0_serves() const {
    const comm::RankStatus& rank = board_->rank(0);
    const bool there = has_rank_0() ? ranks_[0].running() : rank.heartbeat_ns != 0;
    return there && rank.state == static_cast<uint32_t>(comm::RankState::Ready);
  }

  /// All ranks here ended because others did: what those died of may be on its way.
  bool hopes_for_the_cause() const {
    return others_ && others_->connected() && !killed_by_us_ && failing() && cause_of(failures_).reason == "CommunicatorAborted" && Clock::now() < end_by_;
  }

  int running() const {
    return static_cast<int>(std::count_if(ranks_.begin(), ranks_.end(), [](const Child& rank) { return rank.running(); }));
  }

  void wait_for_news() {
    std::vector<pollfd> events{{signals_.descriptor(), POLLIN, 0}};
    if (others_) events.push_back({others_->descriptor(), POLLIN, 0});
    for (const Child& rank : ranks_)
      if (rank.running()) events.push_back({rank.descriptor(), POLLIN, 0});   // poll skips -1
    poll(events.data(), events.size(), 100);
  }

  void on_signal(int signal) {
    if (signal == SIGCHLD) return;   // reap() follows
    if (signalled_ || failing() || (others_ && !has_rank_0() && !others_->connected())) {
      LOG(WARNING) << "signal " << signal << (signalled_ ? " again" : "") << ": ending at once";
      cut_short_ = !failing();
      return kill_all();
    }
    signalled_ = true;
    stop(signal);
  }

  /// The first time it is asked for: by a signal, or by another node.
  void stop(int signal) {
    if (interrupted_ || failing()) return;
    LOG(INFO) << "signal " << signal << ": rank 0 has " << options_.drain.count() << " ms to drain";
    interrupted_ = true;
    end_by_ = std::min(end_by_, Clock::now() + options_.drain);
    if (has_rank_0()) ranks_[0].send(signal);
    else others_->ask_to_stop();
  }

  void on_news(const News& news) {
    switch (news.kind) {
      case News::Kind::Failed: return note(news.failure);
      case News::Kind::Stop: return stop(SIGTERM);
      case News::Kind::Left: break;
    }
    LOG(INFO) << "node " << news.node << " has left";
    const Dealt theirs = deal(options_.ranks, options_.nodes.count, news.node);
    for (int r = theirs.first; r < theirs.first + theirs.count; ++r) board_->rank(r).heartbeat_ns = 0;
    if (failing()) return;
    if (news.node == 0) end_by_ = std::min(end_by_, Clock::now() + options_.drain);
    else if (!deserted_) deserted_ = Desertion{theirs.first, Clock::now() + options_.farewell};
  }

  void reap() {
    for (int i = 0; i < here_.count; ++i)
      if (ranks_[i].reap()) on_exit(i);
    int reaper = 0;
    prctl(PR_GET_CHILD_SUBREAPER, &reaper);
    if (getpid() != 1 && reaper == 0) return;
    for (int status = 0, pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {   // orphans of ranks, which end up here
      for (int i = 0; i < here_.count; ++i)
        if (ranks_[i].running() && ranks_[i].pid() == pid) ranks_[i].ended(status), on_exit(i);
    }
  }

  void on_exit(int i) {
    const int r = here_.first + i;
    const Exit exit = *ranks_[i].exit();
    comm::RankStatus& status = board_->rank(r);
    status.heartbeat_ns = 0;   // not frozen: gone; and /ready fails from here on
    if (exit.signal == SIGKILL && killed_by_us_) return;
    if (exit.well()) {
      LOG(INFO) << rank_name(r) << " ended";
      if (!failing()) end_by_ = std::min(end_by_, Clock::now() + options_.drain);
      if (r != 0 && !deserted_) deserted_ = Desertion{r, Clock::now() + options_.farewell};
      return;
    }
    Failure failure{r, "RankLost", rank_name(r) + " " + exit.text(), 5};
    if (exit.signal == 0) {
      failure.exit_code = exit.code;
      if (status.failed == 1) failure = {r, status.reason, status.message, exit.code};
    } else if (interrupted_ && r == 0 && (exit.signal == SIGTERM || exit.signal == SIGINT || exit.signal == SIGHUP)) {
      failure.reason = "Interrupted", failure.exit_code = 6;
    } else if (exit.signal == SIGKILL && comm::oom_kills() > oom_kills_) {
      failure.reason = "OOMKilled", failure.message += ": the memory limit of the container was reached";
    }
    fail(failure);
  }

  bool failing() const { return !failures_.empty(); }

  /// Of a rank here: tells everybody.
  void fail(const Failure& failure) {
    if (others_) others_->tell(failure);
    note(failure);
  }

  /// Survivors have the farewell time to leave by themselves.
  void note(const Failure& failure) {
    LOG(ERROR) << failure.reason << ": " << failure.message;
    board_->fail(failure.rank, failure.reason, failure.message, failure.exit_code);
    if (!failing()) {
      end_by_ = Clock::now() + options_.farewell;
      comm::abort_segment(options_.segment, failure.reason + ": " + failure.message);
    }
    failures_.push_back(failure);
  }

  void watch(Time now) {
    if (now >= end_by_) return out_of_time();
    if (failing()) return;
    // A follower leaves only when rank 0 has dismissed it; then rank 0 is draining or about to end itself.
    if (deserted_ && now >= deserted_->judge_at && rank_0_serves() && !interrupted_)
      return fail({deserted_->rank, "RankLost", rank_name(deserted_->rank) + " ended while rank 0 serves", 5});
    if (const auto stall = watchdog_.observe(*board_, now)) fail({stall->rank, "RankHung", stall->message, 5});
  }

  void out_of_time() {
    if (!failing() && !killed_by_us_) {
      if (interrupted_) {
        LOG(WARNING) << "not drained within " << options_.drain.count() << " ms: ending at once";
        cut_short_ = true;
      } else {
        const auto late = std::find_if(ranks_.begin(), ranks_.end(), [](const Child& rank) { return rank.running(); });
        const int r = here_.first + static_cast<int>(late - ranks_.begin());
        fail({r, "RankHung", rank_name(r) + " did not end within " + std::to_string(options_.drain.count()) + " ms after the others", 5});
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
      failures_.push_back({here_.first, "Interrupted", "ended before all requests were answered", 6});
      if (others_) others_->tell(failures_.back());
    }
    if (failures_.empty()) return 0;
    const Failure& cause = cause_of(failures_);
    write_termination_message(options_.termination_message_path, cause);
    LOG(ERROR) << "the group ends: " << cause.reason << ": " << cause.message;
    return cause.exit_code;
  }

  struct Desertion {
    int rank;
    Time judge_at;
  };

  const Options& options_;
  const Dealt here_;
  SignalQueue signals_;
  GroupFiles files_;
  std::shared_ptr<comm::StatusBoard> board_;
  std::optional<Rendezvous> others_;   ///< of a group over several nodes
  Watchdog watchdog_;
  const long oom_kills_;
  std::vector<Child> ranks_;   ///< of this node, in order; after files_: killed first
  std::vector<Failure> failures_;
  std::optional<Desertion> deserted_;
  bool interrupted_ = false, signalled_ = false, cut_short_ = false, killed_by_us_ = false;
  Time end_by_ = Time::max();
};

}  // namespace

int run(const Options& options) {
  if (options.ranks < 1) throw std::invalid_argument("a group of " + std::to_string(options.ranks) + " ranks; expected at least 1");
  if (!can_deal(options.ranks, options.nodes.count) || options.nodes.here < 0 || options.nodes.here >= options.nodes.count)
    throw std::invalid_argument(std::to_string(options.ranks) + " ranks on node " + std::to_string(options.nodes.here) + " of " + std::to_string(options.nodes.count));
  if (!options.arguments) throw std::invalid_argument("launch::Options without arguments");
  if (const int groups = remove_stale_groups(); groups > 0) LOG(INFO) << "removed the shared memory of " << groups << " killed groups";
  return Launcher(options).run();
}

}  // namespace pm::launch
