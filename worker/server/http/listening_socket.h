// SPDX-License-Identifier: Apache-2.0
// Ends a listening TCP socket without a reset for a client whose connection is already established.
#pragma once
#include <chrono>

namespace pm::server::http {

/// Takes no new connection and returns once every established one is accepted, at most after `limit`. Closing a
/// listening socket resets the connections that wait in its queue, although their clients may have sent a request. From
/// this call on the first packet of a connection (SYN) is dropped: a client repeats it after a second, and is refused
/// if the socket is closed by then. Another thread has to go on calling accept(). Where the kernel has no socket
/// filters, the queue is emptied as far as clients let it.
void finish_queued_connections(int socket, std::chrono::milliseconds limit);

}  // namespace pm::server::http
