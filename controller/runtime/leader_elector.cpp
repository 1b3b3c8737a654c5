// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/leader_elector.h"

#include "controller/core/object.h"
#include "controller/core/status_error.h"
#include "controller/core/time.h"

#include "base/log.h"

namespace pm::k8s {
namespace {

using std::chrono::milliseconds;

const Json& spec_of(const Json& lease) {
  static const Json nothing = Json::object();
  return lease.is_object() && lease.contains("spec") && lease["spec"].is_object() ? lease["spec"] : nothing;
}

int64_t number(const Json& spec, const char* field) {
  return spec.contains(field) && spec[field].is_number_integer() ? spec[field].get<int64_t>() : 0;
}

}  // namespace

bool LeaderElector::holds() const { return held_ && clock_.now().time_since_epoch().count() < until_.load(); }

milliseconds LeaderElector::pause() const {
  if (held_) return election_.retry;
  return milliseconds(static_cast<int64_t>(static_cast<double>(election_.retry.count()) / 2 * (1 + uniform_() / 2)));
}

bool LeaderElector::attempt() {
  const Response response =
      api_.send({.verb = Verb::Get, .resource = leases_resource, .ns = election_.ns, .name = election_.name});
  if (failed(response)) {
    if (error_of(response).failure == Failure::NotFound) return create();
    LOG(WARNING) << "lease " << election_.name << ": " << to_string(error_of(response));
    return holds();
  }
  const Json& lease = object_of(response);
  if (spec_of(lease) != seen_) seen_ = spec_of(lease), seen_at_ = clock_.now();
  if (string_at(lease, "/spec/holderIdentity") != election_.identity && held_) {
    until_ = 0;  // another process took the Lease, or a user changed it
    return false;
  }
  return may_take(lease) && take(lease);
}

bool LeaderElector::may_take(const Json& lease) {
  const std::string holder = string_at(lease, "/spec/holderIdentity");
  if (holder.empty() || holder == election_.identity) return true;
  const auto theirs =
      std::max<milliseconds>(election_.duration, milliseconds(number(spec_of(lease), "leaseDurationSeconds") * 1000));
  return clock_.now() - seen_at_ >= theirs;
}

Json LeaderElector::spec(const Json& old) const {
  const bool same = old.value("holderIdentity", Json()) == election_.identity;
  const std::string now = format_micro_time(clock_.wall());
  return {{"holderIdentity", election_.identity},
          {"leaseDurationSeconds", election_.duration.count() / 1000},
          {"acquireTime", same && old.contains("acquireTime") ? old["acquireTime"] : Json(now)},
          {"renewTime", now},
          {"leaseTransitions", number(old, "leaseTransitions") + (same || old.empty() ? 0 : 1)}};
}

bool LeaderElector::create() {
  const auto sent_at = clock_.now();
  Request request{.verb = Verb::Create, .resource = leases_resource, .ns = election_.ns, .name = election_.name};
  request.body = {{"apiVersion", "coordination.k8s.io/v1"},
                  {"kind", "Lease"},
                  {"metadata", {{"name", election_.name}, {"namespace", election_.ns}}},
                  {"spec", spec(Json::object())}};
  return won(api_.send(request), sent_at);
}

bool LeaderElector::take(const Json& lease) {
  const auto sent_at = clock_.now();
  Request request{.verb = Verb::MergePatch, .resource = leases_resource, .ns = election_.ns, .name = election_.name};
  request.body = {{"metadata", {{"resourceVersion", version_of(lease)}}}, {"spec", spec(spec_of(lease))}};
  return won(api_.send(request), sent_at);
}

/// The permission to write counts from before the request, so it ends before the Lease expires for others.
bool LeaderElector::won(const Response& response, Clock::Steady sent_at) {
  if (failed(response)) {
    if (error_of(response).failure != Failure::Conflict && error_of(response).failure != Failure::AlreadyExists)
      LOG(WARNING) << "lease " << election_.name << ": " << to_string(error_of(response));
    return holds();
  }
  seen_ = spec_of(object_of(response)), seen_at_ = clock_.now();
  until_ = (sent_at + election_.deadline).time_since_epoch().count();
  held_ = true;
  return holds();
}

void LeaderElector::release() {
  if (!holds()) return;
  until_ = 0;
  const Response now =
      api_.send({.verb = Verb::Get, .resource = leases_resource, .ns = election_.ns, .name = election_.name});
  if (failed(now) || string_at(object_of(now), "/spec/holderIdentity") != election_.identity) return;
  Json empty = spec_of(object_of(now));
  empty["holderIdentity"] = "";
  empty["leaseDurationSeconds"] = 1;
  Request request{.verb = Verb::MergePatch, .resource = leases_resource, .ns = election_.ns, .name = election_.name};
  request.body = {{"metadata", {{"resourceVersion", version_of(object_of(now))}}}, {"spec", std::move(empty)}};
  api_.send(request);
}

}  // namespace pm::k8s
