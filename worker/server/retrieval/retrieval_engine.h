// SPDX-License-Identifier: Apache-2.0
// An engine that finds passages for each prompt and generates from them (RAG): it sends the question through the model,
// makes the generator's inputs, and runs them on another engine.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "worker/engine/engine.h"
#include "worker/server/retrieval/retriever.h"

namespace pm::server {

/// Thread-safe. The prompt of a request is the question, in tokens of the question's encoder. Its passages come with
/// the first event. RAG-Token: the answer is one request with a weighted source for each passage. RAG-Sequence: a
/// request for each passage makes num_beams candidates, and those of all are scored over all passages; each answer
/// comes whole, with its log-probability as score.
class RetrievalEngine final : public engine::Engine {
 public:
  /// Throws Error{InvalidRequest} for a request that `inner` would refuse.
  using Check = std::function<void(const engine::Request&)>;
  /// Everything must outlive the engine. `check` gets the longest request that passages could lead to, so that one
  /// which does not fit is refused by submit() and not after the search.
  RetrievalEngine(engine::Engine& inner, const policy::Model& model, const Retriever& retriever, Check check);
  /// Cancels open requests and waits until the inner engine has ended them.
  ~RetrievalEngine() override;

  /// Throws Error{InvalidRequest} also for what RAG-Sequence does not have: logprobs, and more sequences than
  /// candidates.
  void submit(engine::Request, std::function<void(const engine::Event&)>) override;
  /// Cancels a request in whatever state it is.
  void cancel(const std::string& id) override;
  void forward(engine::ForwardRequest request, std::function<void(engine::ForwardResult)> on_done) override {
    inner_.forward(std::move(request), std::move(on_done));
  }
  engine::Statistics statistics() const override { return inner_.statistics(); }
  void fail(const std::string& reason) override { inner_.fail(reason); }
  int64_t steps() const override { return inner_.steps(); }

 private:
  struct Job;
  using JobPointer = std::shared_ptr<Job>;

  void check(const engine::Request&) const;
  engine::Request longest_request(const engine::Request&) const;
  void run(const JobPointer&, std::function<void()> step);
  void loop();
  void take_passages(const JobPointer&, const engine::ForwardResult&);
  void generate_from_all(const JobPointer&, std::vector<std::vector<int32_t>> contexts);
  void generate_from_each(const JobPointer&, std::vector<std::vector<int32_t>> contexts);
  void take_candidates(const JobPointer&, size_t context, const engine::Event&);
  void score_next(const JobPointer&);
  void take_scores(const JobPointer&, const engine::ForwardResult&, size_t rows);
  void emit_answers(const JobPointer&);
  void emit(Job&, engine::Event);
  void end(const JobPointer&, engine::Finish, const std::string& reason);
  void close(const JobPointer&);

  engine::Engine& inner_;
  const policy::Model& model_;
  const policy::Retrieval& retrieval_;
  const Retriever& retriever_;
  const Check check_;
  std::mutex mutex_;  ///< guards all below
  std::condition_variable changed_;
  std::map<std::string, JobPointer> jobs_;
  std::deque<std::function<void()>> steps_;
  bool stopping_ = false;
  std::thread thread_;  ///< reads passages, makes tokens of texts and scores answers, which would hold up the engine
};

}  // namespace pm::server
