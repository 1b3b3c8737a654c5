#!/bin/sh
# Latency of all_reduce over shared memory beside Gloo, in one run: bench/allreduce.sh [BUILD_FOLDER=build/release] [RANKS] [ROUNDS]
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
[ $# -gt 0 ] && shift
cmake --build "$build" --target bench_allreduce >/dev/null
exec "$build/bin/bench_allreduce" "$@"
