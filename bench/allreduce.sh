#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures the latency of all_reduce over shared memory, over TCP between nodes, and with Gloo, in one run.
# Usage: bench/allreduce.sh [BUILD_FOLDER=build/release] [RANKS] [ROUNDS]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
built bench_allreduce
exec "$build/bin/bench_allreduce" "$@"
