// SPDX-License-Identifier: Apache-2.0
#include "worker/server/http/listening_socket.h"

#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <thread>

namespace pm::server::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A handshake whose SYN was taken needs one round trip more, so an empty queue has to stay empty for so long.
constexpr milliseconds handshake_time{20};
constexpr milliseconds check_interval{2};

/// Drops packets with SYN and without ACK. The filter of a TCP socket sees the TCP header first (tcp_v4_rcv).
void drop_first_packets(int socket) {
  constexpr unsigned flags_offset = 13, syn = TH_SYN, ack = TH_ACK;
  std::array<sock_filter, 5> program{{
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, flags_offset), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, syn | ack),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, syn, 0, 1), BPF_STMT(BPF_RET | BPF_K, 0),  // drop
      BPF_STMT(BPF_RET | BPF_K, 0xffffffffu),                                        // keep all bytes
  }};
  const sock_fprog filter{program.size(), program.data()};
  setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter);
}

/// Returns whether connections wait to be accepted. For a listening socket Linux reports their number as tcpi_unacked.
bool queued(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  return getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_unacked > 0;
}

}  // namespace

void finish_queued_connections(int socket, milliseconds limit) {
  drop_first_packets(socket);
  const auto end = steady_clock::now() + limit;
  for (auto empty_since = steady_clock::now(), now = empty_since; now < end && now - empty_since < handshake_time;
       now = steady_clock::now()) {
    if (queued(socket)) empty_since = now;
    std::this_thread::sleep_for(check_interval);
  }
}

}  // namespace pm::server::http
