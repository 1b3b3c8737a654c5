// SPDX-License-Identifier: Apache-2.0
#include "fake_operator.h"

namespace pm::op::test {

using k8s::Failure;
using k8s::Response;

bool FakeOperator::reconcile() {
  const bool past = stale > 0 && ++passes_ % 2 == 1;
  return run(past ? cluster_.stale_snapshot(stale) : cluster_.snapshot());
}

bool FakeOperator::run(const Snapshot& snapshot) {
  requeue.reset();
  auto next = reconcile_step(ReconcileState{.cache = cache}, snapshot, std::nullopt, settings());
  while (auto* call = std::get_if<Call>(&next)) {
    const bool now = requests++ == at;
    const CrashPoint how = now ? crash_point : CrashPoint::None;
    if (how == CrashPoint::BeforeRequest) return false;
    const int64_t before = cluster_.version();
    Response response = how == CrashPoint::AnswerLostUndone
                            ? Response(k8s::ApiError{Failure::Transient, 0, "", "connection refused", 0})
                            : cluster_.send(call->request);
    if (how == CrashPoint::AfterRequest || (one_request_lives && cluster_.version() != before)) return false;
    if (how == CrashPoint::AnswerLost) response = k8s::ApiError{Failure::Transient, 0, "", "connection reset", 0};
    next = reconcile_step(std::move(call->state), snapshot, response, settings());
  }
  Done& done = std::get<Done>(next);
  events.insert(events.end(), done.events.begin(), done.events.end());
  requeue = done.requeue_after;
  return !done.error;
}

bool FakeOperator::settle(int limit, int quiet) {
  for (int second = 0, still = 0; second < limit; ++second) {
    const int64_t before = cluster_.version();
    bool good = false;
    for (int tries = 0; !good && tries < 100; ++tries) good = reconcile();  // the queue tries again
    cluster_.tick();
    still = cluster_.version() == before && good && !cluster_.waits() ? still + 1 : 0;
    if (still >= quiet) return true;
  }
  return false;
}

}  // namespace pm::op::test
