// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/tcp/exchange.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>
#include <thread>
#include <vector>

#include "worker/base/error.h"

namespace pm::comm {
namespace {

constexpr auto abort_poll_interval = std::chrono::milliseconds(
    100);  ///< interval at which a sleeping rank looks for an abort that closes none of its connections
constexpr auto abort_reason_grace =
    std::chrono::milliseconds(200);  ///< a connection has ended, and the abort reason may still arrive on another one

}  // namespace

Exchange::Exchange(AbortNote& note, int rank, int waiters, std::chrono::milliseconds deadline,
                   std::function<void(const std::string&)> end_group)
    : note_(note), rank_(rank), deadline_(deadline), spin_(waiters), end_group_(std::move(end_group)) {}

void Exchange::fail(const std::string& what) {
  end_group_(what);
  throw Error(Reason::CommunicatorAborted, what);
}

void Exchange::throw_disconnected(const char* op, int peer) {
  const auto deadline = Clock::now() + abort_reason_grace;
  while (!note_.aborted() && Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (note_.aborted()) throw_aborted(op, rank_, note_);
  fail(std::string(op) + " on rank " + std::to_string(rank_) + ": rank " + std::to_string(peer) +
       " closed its connection");
}

/// Moves the bytes that can be moved without waiting; returns true when any were.
bool Exchange::advance(const char* op, Transfer& transfer, std::string (*describe)(uint64_t)) {
  if (transfer.finished()) return false;
  uint64_t& tag = transfer.outgoing ? transfer.tag : transfer.received_tag;
  const auto head = std::as_writable_bytes(std::span(&tag, 1)).subspan(std::min(transfer.done, sizeof tag));
  const auto body = transfer.body.subspan(transfer.done < sizeof tag ? 0 : transfer.done - sizeof tag);
  const auto count =
      transfer.outgoing ? send_some(*transfer.socket, head, body) : receive_some(*transfer.socket, head, body);
  if (!count) throw_disconnected(op, transfer.peer);
  if (*count == 0) return false;
  const bool tag_was_complete = transfer.done >= sizeof tag;
  transfer.done += *count;
  if (transfer.outgoing || tag_was_complete || transfer.done < sizeof tag) return true;
  if (transfer.any_tag) {
    transfer.tag = transfer.received_tag;
  } else if (transfer.received_tag != transfer.tag) {
    const auto words = [&](uint64_t value) { return describe ? describe(value) : std::to_string(value); };
    const std::string what = "ranks disagree: rank " + std::to_string(rank_) + " calls " + words(transfer.tag) +
                             ", rank " + std::to_string(transfer.peer) + " calls " + words(transfer.received_tag);
    end_group_(what);
    throw std::logic_error(what);
  }
  return true;
}

/// Sleeps until one of the unfinished transfers can continue.
void Exchange::sleep(std::span<const Transfer> transfers, Clock::time_point deadline) const {
  std::vector<pollfd> events;
  for (const Transfer& transfer : transfers)
    if (!transfer.finished())
      events.push_back({transfer.socket->descriptor(), static_cast<short>(transfer.outgoing ? POLLOUT : POLLIN), 0});
  const auto left = std::min<Clock::duration>(abort_poll_interval, deadline - Clock::now());
  poll(events.data(), events.size(),
       std::max(1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count())));
}

void Exchange::run(const char* op, std::span<Transfer> transfers, std::string (*describe)(uint64_t)) {
  auto deadline = after(deadline_);
  auto budget = spin_.budget();
  auto sleep_from = Clock::now() + budget;
  bool slept = false;
  for (;;) {
    if (note_.aborted()) throw_aborted(op, rank_, note_);
    bool moved = false, all = true;
    for (Transfer& transfer : transfers)  // incoming transfers first: they may say why nothing can be sent
      if (!transfer.outgoing) moved |= advance(op, transfer, describe);
    for (Transfer& transfer : transfers) {
      if (transfer.outgoing) moved |= advance(op, transfer, describe);
      all &= transfer.finished();
    }
    if (all) break;
    if (moved) {
      deadline = after(deadline_);
      sleep_from = Clock::now() + budget;
      continue;
    }
    const auto now = Clock::now();
    if (now >= deadline) {
      const auto missing = std::find_if(transfers.begin(), transfers.end(),
                                        [](const Transfer& transfer) { return !transfer.finished(); });
      fail(std::string(op) + " on rank " + std::to_string(rank_) + " waited " + std::to_string(deadline_.count()) +
           " ms for rank " + std::to_string(missing->peer));
    }
    if (now < sleep_from) {
      relax();
      continue;
    }
    slept = true;
    sleep(transfers, deadline);
  }
  spin_.learn(budget, slept);
}

bool Exchange::wait_for_data(const char* op, const Socket& socket, std::chrono::milliseconds timeout) {
  const auto end = after(timeout);
  for (;;) {
    if (note_.aborted()) throw_aborted(op, rank_, note_);
    const auto left = std::max<Clock::duration>(Clock::duration::zero(), end - Clock::now());
    if (wait_for(socket, false, std::min(std::chrono::ceil<std::chrono::milliseconds>(left), abort_poll_interval)))
      return true;
    if (Clock::now() >= end) return false;
  }
}

}  // namespace pm::comm
