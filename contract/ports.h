// SPDX-License-Identifier: Apache-2.0
// The ports of a replica pod: defaults of the worker's flags, and what the controller passes to pods and puts into
// Services.
#pragma once

namespace pm {

inline constexpr int http_port = 8000;         ///< the API of rank 0
inline constexpr int admin_port = 8001;        ///< /live, /ready, /status, /metrics and /memory of every pod
inline constexpr int rendezvous_port = 29500;  ///< where the launcher of node 0 listens for the others; torchrun's

}  // namespace pm
