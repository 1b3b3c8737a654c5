#!/bin/sh
# Products of few rows beside ATen's and beside a plain read of the weights, in one run: bench/gemv.sh [BUILD_FOLDER=build/release] [ROUNDS]
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
[ $# -gt 0 ] && shift
cmake --build "$build" --target bench_gemv >/dev/null
exec "$build/bin/bench_gemv" "$@"
