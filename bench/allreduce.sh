#!/bin/bash
# Latency of all_reduce over shared memory and over TCP between nodes beside Gloo, in one run: bench/allreduce.sh [BUILD_FOLDER=build/release] [RANKS] [ROUNDS]
. "$(dirname "$0")/common.sh"
built bench_allreduce
exec "$build/bin/bench_allreduce" "$@"
