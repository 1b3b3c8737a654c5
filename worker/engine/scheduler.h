// Rank 0's scheduler: admits requests while KV blocks last, mixes prefill chunks and decode tokens in one step, delivers tokens.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "worker/comm/channel.h"
#include "worker/engine/rank.h"
#include "worker/engine/request.h"

namespace pm::engine {

struct Limits {
  int64_t vocabulary = 0, positions = 0;   ///< of the model
  int64_t kv_blocks = 0;
  int64_t max_concurrency = 64, max_queue = 256;
  int64_t step_tokens = 512;               ///< of one step: longer prompts enter in chunks
  bool split_passes = true;                ///< rows of a pass are independent; false where images are compared with texts
  int32_t forced_bos = -1, forced_eos = -1;   ///< Hugging Face's forced_bos_token_id and forced_eos_token_id; -1: none
  int32_t decoder_start = -1;              ///< encoder-decoder: a prompt goes to the encoder, the answer begins with this id; -1: no encoder
};

/// Blocks that `tokens` tokens need.
int64_t blocks_for(int64_t tokens);

class Scheduler final : public Engine {
 public:
  /// Owns the thread that steps `rank` and feeds `followers`. `after_step` gets the step's number and the number of open requests.
  Scheduler(Rank& rank, std::vector<std::shared_ptr<comm::Channel>> followers, Limits,
            std::function<void(int64_t step, int64_t open)> after_step = {});
  /// Ends open requests as cancelled, joins. The group stays usable.
  ~Scheduler() override;

  void submit(Request, std::function<void(const Event&)>) override;
  void forward(ForwardRequest, std::function<void(ForwardResult)>) override;
  void cancel(const std::string& id) override;
  Statistics statistics() const override;
  void fail(const std::string& reason) override;
  int64_t steps() const override;
  /// Why the engine stopped; empty while it runs.
  std::string failure() const;
  bool failed() const { return !failure().empty(); }

 private:
  struct Sequence {
    Request request;
    std::function<void(const Event&)> on_event;
    int32_t slot = -1;
    std::vector<int32_t> source;           ///< encoder-decoder: what the encoder reads; the prompt is then the answer's start
    std::vector<int32_t> blocks;           ///< reserved at admission for prompt and answer together
    std::vector<int32_t> source_blocks;
    int64_t all_blocks() const;
    int64_t told_blocks = 0, context = 0, generated = 0;
    bool cancelled = false;
    std::chrono::steady_clock::time_point submitted, admitted;
  };
  using Open = std::vector<std::unique_ptr<Sequence>>;
  /// A pass that waits, whole or from some row on.
  struct Pass {
    ForwardRequest request;
    std::function<void(ForwardResult)> on_done;
    int64_t rows_done = 0;
    Arrays outputs;                        ///< of the rows that are done
  };

  void loop();
  void admit();
  StepMessage plan_step(std::vector<Sequence*>& scheduled);
  void deliver(const std::vector<Sequence*>& scheduled, const StepMessage&, const std::vector<int32_t>& ids);
  void retire(Sequence&, Event);
  void drop_cancelled();
  void run_step();
  void run_pass();
  void refuse_when_full();
  StepResult run(const StepMessage&);
  void give_back_slots();
  void fail_all(const std::string& reason);

  Rank& rank_;
  std::vector<std::shared_ptr<comm::Channel>> followers_;
  const Limits limits_;
  std::function<void(int64_t, int64_t)> after_step_;

  mutable std::mutex mutex_;               ///< guards all below; not held while a step runs or an event is delivered
  std::condition_variable wake_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::deque<Pass> passes_;
  Pass* running_pass_ = nullptr;
  Open running_;
  std::vector<int32_t> free_blocks_, free_slots_, freed_;
  Statistics statistics_;
  std::string failure_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace pm::engine
