// SPDX-License-Identifier: Apache-2.0
#include "worker/server/retrieval/retrieval_engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "worker/base/error.h"
#include "worker/engine/sampling/sampler.h"
#include "worker/server/retrieval/answer_scores.h"

namespace pm::server {

using engine::Event;
using engine::Finish;
using std::chrono::steady_clock;

namespace {

/// The maximum number of values of one forward pass that scores answers: 64 MiB of logits.
constexpr int64_t max_scored_values = int64_t{16} << 20;

/// Returns rows of ids, padded behind to the longest, and their mask.
std::pair<Array, Array> padded(std::span<const std::vector<int32_t>> rows) {
  size_t length = 0;
  for (const std::vector<int32_t>& row : rows) length = std::max(length, row.size());
  std::vector<int64_t> ids, mask;
  for (const std::vector<int32_t>& row : rows) {
    for (size_t i = 0; i < length; ++i) {
      ids.push_back(i < row.size() ? row[i] : 0);
      mask.push_back(i < row.size() ? 1 : 0);
    }
  }
  const std::vector<int64_t> shape{static_cast<int64_t>(rows.size()), static_cast<int64_t>(length)};
  return {{shape, std::move(ids)}, {shape, std::move(mask)}};
}

}  // namespace

/// A request on its way. One step of it runs at a time, except that its candidates come from the inner engine.
struct RetrievalEngine::Job {
  Job(engine::Request made, std::function<void(const Event&)> listener)
      : request(std::move(made)),
        on_event(std::move(listener)),
        ended(static_cast<size_t>(request.search.num_return_sequences)) {}
  engine::Request request;
  std::function<void(const Event&)> on_event;
  steady_clock::time_point submitted = steady_clock::now();
  double queued_seconds = 0;
  std::atomic<bool> cancelled{false};
  std::vector<std::string> inner_ids;  ///< guarded by the engine's mutex
  std::shared_ptr<const std::vector<engine::RetrievedPassage>> passages;
  std::vector<float> log_weights;
  std::vector<bool> ended;  ///< of each returned sequence
  // RAG-Sequence
  std::vector<std::vector<int32_t>> contexts;
  std::vector<std::vector<AnswerCandidate>> made;  ///< of each passage; guarded by the engine's mutex
  size_t open = 0;                                 ///< candidates that have not ended; likewise
  Finish worst = Finish::None;                     ///< of a candidate that failed or was cancelled; likewise
  std::string reason;
  std::vector<AnswerCandidate> candidates;
  size_t scored = 0;  ///< candidates whose likelihood of every passage is known
  bool skips_bos = false;
};

RetrievalEngine::RetrievalEngine(engine::Engine& inner, const policy::Model& model, const Retriever& retriever,
                                 Check check)
    : inner_(inner),
      model_(model),
      retrieval_(*model.retrieval),
      retriever_(retriever),
      check_(std::move(check)),
      thread_([this] { loop(); }) {}

RetrievalEngine::~RetrievalEngine() {
  std::vector<std::string> ids;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, job] : jobs_) ids.push_back(id);
  }
  for (const std::string& id : ids) cancel(id);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return jobs_.empty(); });
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void RetrievalEngine::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !steps_.empty(); });
    if (steps_.empty()) return;
    const std::function<void()> step = std::move(steps_.front());
    steps_.pop_front();
    lock.unlock();
    step();
    lock.lock();
  }
}

/// Queues a step of a request, which ends with the reason of what the step throws.
void RetrievalEngine::run(const JobPointer& job, std::function<void()> step) {
  {
    std::lock_guard lock(mutex_);
    steps_.push_back([this, job, step = std::move(step)] {
      if (job->cancelled) return end(job, Finish::Cancelled, {});
      try {
        step();
      } catch (const std::exception& error) {
        end(job, Finish::Failed, error.what());
      }
    });
  }
  changed_.notify_all();
}

void RetrievalEngine::check(const engine::Request& request) const {
  const auto refuse = [](const std::string& message) { throw Error(Reason::InvalidRequest, message); };
  if (request.prompt.empty()) refuse("the prompt has 0 tokens; at least 1 is required");
  if (!request.source.empty() || !request.sources.empty())
    refuse("the request has inputs of an encoder; this model makes them of the passages that it finds");
  if (retrieval_.marginal == policy::Marginal::Token) return check_(longest_request(request));
  if (request.logprobs >= 0)
    refuse(model_.architecture + " has no logprobs: answers are ranked whole, over all passages; omit them");
  const int64_t candidates = retrieval_.docs * std::max<int64_t>(1, request.search.num_beams);
  if (request.search.num_return_sequences > candidates)
    refuse("num_return_sequences is " + std::to_string(request.search.num_return_sequences) + ", and " +
           std::to_string(retrieval_.docs) + " passages with num_beams " + std::to_string(request.search.num_beams) +
           " give " + std::to_string(candidates) + " candidates; ask for at most as many");
  check_(longest_request(request));
}

/// Returns the request that the inner engine would get from passages of full length.
engine::Request RetrievalEngine::longest_request(const engine::Request& question) const {
  engine::Request request = question;
  const std::vector<int32_t> context(static_cast<size_t>(retrieval_.max_length));
  if (retrieval_.marginal == policy::Marginal::Token) {
    request.prompt.clear();
    request.sources.assign(static_cast<size_t>(retrieval_.docs), {context, 0});
  } else {
    request.prompt = context;
    request.search.num_return_sequences = std::max<int64_t>(1, request.search.num_beams);
  }
  return request;
}

void RetrievalEngine::submit(engine::Request request, std::function<void(const Event&)> on_event) {
  check(request);
  const auto job = std::make_shared<Job>(std::move(request), std::move(on_event));
  engine::ForwardRequest question{.id = job->request.id + "/question", .inputs = {}, .outputs = {}};
  question.inputs["input_ids"] = padded({&job->request.prompt, 1}).first;
  question.outputs = {"doc_scores", "doc_ids"};
  {
    std::lock_guard lock(mutex_);
    job->inner_ids = {question.id};
    jobs_[job->request.id] = job;
  }
  try {
    inner_.forward(std::move(question), [this, job](engine::ForwardResult result) {
      run(job, [this, job, result = std::move(result)] { take_passages(job, result); });
    });
  } catch (...) {
    close(job);
    throw;
  }
}

void RetrievalEngine::cancel(const std::string& id) {
  std::vector<std::string> inner;
  {
    std::lock_guard lock(mutex_);
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) return;
    found->second->cancelled = true;
    inner = found->second->inner_ids;
  }
  for (const std::string& one : inner) inner_.cancel(one);
}

void RetrievalEngine::take_passages(const JobPointer& job, const engine::ForwardResult& found) {
  if (found.finish != Finish::Stop) return end(job, found.finish, found.reason);
  job->queued_seconds = std::chrono::duration<double>(steady_clock::now() - job->submitted).count();
  const auto& scores = std::get<std::vector<float>>(found.outputs.at("doc_scores").values);
  const auto& numbers = std::get<std::vector<int64_t>>(found.outputs.at("doc_ids").values);
  job->passages = std::make_shared<const std::vector<engine::RetrievedPassage>>(retriever_.passages(numbers, scores));
  job->log_weights = engine::log_softmax(scores);
  std::vector<std::vector<int32_t>> contexts = retriever_.contexts(job->request.prompt, *job->passages);
  if (retrieval_.marginal == policy::Marginal::Token)
    generate_from_all(job, std::move(contexts));
  else
    generate_from_each(job, std::move(contexts));
}

void RetrievalEngine::generate_from_all(const JobPointer& job, std::vector<std::vector<int32_t>> contexts) {
  engine::Request request = job->request;
  request.prompt.clear();
  for (size_t i = 0; i < contexts.size(); ++i) request.sources.push_back({std::move(contexts[i]), job->log_weights[i]});
  {
    std::lock_guard lock(mutex_);
    job->inner_ids = {request.id};
  }
  inner_.submit(std::move(request), [this, job](const Event& event) {
    emit(*job, event);
    if (std::all_of(job->ended.begin(), job->ended.end(), [](bool one) { return one; })) close(job);
  });
  if (job->cancelled) inner_.cancel(job->request.id);  // cancel() may have come between
}

void RetrievalEngine::generate_from_each(const JobPointer& job, std::vector<std::vector<int32_t>> contexts) {
  const int64_t beams = std::max<int64_t>(1, job->request.search.num_beams);
  std::vector<std::string> ids;
  for (size_t i = 0; i < contexts.size(); ++i) ids.push_back(job->request.id + "/" + std::to_string(i));
  job->contexts = std::move(contexts);
  {
    std::lock_guard lock(mutex_);
    job->inner_ids = ids;
    job->made.assign(ids.size(), std::vector<AnswerCandidate>(static_cast<size_t>(beams)));
    for (std::vector<AnswerCandidate>& of_passage : job->made)
      for (AnswerCandidate& candidate : of_passage) candidate.tokens = {static_cast<int32_t>(model_.decoder_start)};
    job->open = ids.size() * static_cast<size_t>(beams);
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    engine::Request request = job->request;
    request.id = ids[i];
    request.prompt = job->contexts[i];
    if (retrieval_.pad >= 0)  // transformers pads here and gives generate() no mask, so that the padding is read
      request.prompt.resize(static_cast<size_t>(retrieval_.max_length), static_cast<int32_t>(retrieval_.pad));
    request.search.num_return_sequences = beams;
    request.sampling.seed += i;
    try {
      inner_.submit(std::move(request), [this, job, i](const Event& event) { take_candidates(job, i, event); });
    } catch (const std::exception& error) {  // those before run to their end, so that no event comes after the last
      for (const std::string& id : ids) inner_.cancel(id);
      for (size_t rest = i; rest < ids.size(); ++rest)
        for (int64_t beam = 0; beam < beams; ++beam)
          take_candidates(job, rest,
                          {.sequence = beam, .tokens = {}, .finish = Finish::Failed, .reason = error.what()});
      return;
    }
  }
  if (job->cancelled)
    for (const std::string& id : ids) inner_.cancel(id);
}

void RetrievalEngine::take_candidates(const JobPointer& job, size_t context, const Event& event) {
  {
    std::lock_guard lock(mutex_);
    AnswerCandidate& candidate = job->made[context].at(static_cast<size_t>(event.sequence));
    for (const engine::Token& token : event.tokens) candidate.tokens.push_back(token.id);
    candidate.ended = event.finish == Finish::Stop;
    if (event.finish == Finish::Failed || (event.finish == Finish::Cancelled && job->worst == Finish::None)) {
      job->worst = event.finish;
      job->reason = event.reason;
    }
    if (event.finish == Finish::None || --job->open > 0) return;
  }
  run(job, [this, job] {
    if (job->worst != Finish::None) return end(job, job->worst, job->reason);
    for (std::vector<AnswerCandidate>& of_passage : job->made)
      for (AnswerCandidate& candidate : of_passage) job->candidates.push_back(std::move(candidate));
    prepare_candidates(job->candidates, retrieval_);
    job->skips_bos = begin_with_bos(job->candidates, retrieval_);
    score_next(job);
  });
}

/// Scores the next candidate with as many passages as the limit of values allows.
void RetrievalEngine::score_next(const JobPointer& job) {
  while (job->scored < job->candidates.size() && job->candidates[job->scored].likelihood.size() == job->contexts.size())
    ++job->scored;
  if (job->scored == job->candidates.size()) return emit_answers(job);
  const AnswerCandidate& candidate = job->candidates[job->scored];
  const size_t first = candidate.likelihood.size();
  const int64_t values = static_cast<int64_t>(candidate.tokens.size()) * model_.stacks.back().vocab;
  const size_t rows =
      std::min(job->contexts.size() - first, static_cast<size_t>(std::max<int64_t>(1, max_scored_values / values)));
  engine::ForwardRequest request{.id = job->request.id + "/scores", .inputs = {}, .outputs = {}};
  auto [ids, mask] = padded(std::span(job->contexts).subspan(first, rows));
  request.inputs["context_input_ids"] = std::move(ids);
  request.inputs["context_attention_mask"] = std::move(mask);
  request.inputs["decoder_input_ids"] = padded(std::vector(rows, candidate.tokens)).first;
  request.outputs = {"logits"};
  {
    std::lock_guard lock(mutex_);
    job->inner_ids = {request.id};
  }
  inner_.forward(std::move(request), [this, job, rows](engine::ForwardResult result) {
    run(job, [this, job, rows, result = std::move(result)] { take_scores(job, result, rows); });
  });
}

void RetrievalEngine::take_scores(const JobPointer& job, const engine::ForwardResult& result, size_t rows) {
  if (result.finish != Finish::Stop) return end(job, result.finish, result.reason);
  AnswerCandidate& candidate = job->candidates[job->scored];
  const std::span<const float> logits = std::get<std::vector<float>>(result.outputs.at("logits").values);
  for (size_t row = 0; row < rows; ++row)
    score_passage(candidate, logits.subspan(row * logits.size() / rows, logits.size() / rows),
                  job->log_weights[candidate.likelihood.size()], job->skips_bos, retrieval_);
  score_next(job);
}

void RetrievalEngine::emit_answers(const JobPointer& job) {
  const size_t wanted = job->ended.size();
  if (job->candidates.size() < wanted)
    return end(job, Finish::Failed,
               "num_return_sequences is " + std::to_string(wanted) + ", and the passages gave " +
                   std::to_string(job->candidates.size()) + " different answers; ask for fewer, or for more num_beams");
  rank_candidates(job->candidates);
  for (size_t i = 0; i < wanted; ++i) {
    const AnswerCandidate& best = job->candidates[i];
    Event event{
        .sequence = static_cast<int64_t>(i), .tokens = {}, .finish = best.ended ? Finish::Stop : Finish::Length};
    for (size_t token = 1; token < best.tokens.size(); ++token) event.tokens.push_back({best.tokens[token], 0, {}});
    event.score = best.score;
    if (i == 0) event.queued_seconds = job->queued_seconds, event.cached_tokens = 0;
    emit(*job, std::move(event));
  }
  close(job);
}

/// Passes an event on; the first one gets the passages.
void RetrievalEngine::emit(Job& job, Event event) {
  event.passages = std::move(job.passages);
  job.passages = nullptr;
  if (event.finish != Finish::None) job.ended[static_cast<size_t>(event.sequence)] = true;
  job.on_event(event);
}

void RetrievalEngine::end(const JobPointer& job, Finish finish, const std::string& reason) {
  for (size_t i = 0; i < job->ended.size(); ++i)
    if (!job->ended[i])
      emit(*job, {.sequence = static_cast<int64_t>(i), .tokens = {}, .finish = finish, .reason = reason});
  close(job);
}

/// Forgets a request. The destructor may go on from here.
void RetrievalEngine::close(const JobPointer& job) {
  std::lock_guard lock(mutex_);
  jobs_.erase(job->request.id);
  changed_.notify_all();
}

}  // namespace pm::server
