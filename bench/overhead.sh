#!/bin/sh
# Cost of HTTP and the engine per token with a model that costs nothing: bench/overhead.sh [BUILD_FOLDER=build/release] [TOKENS_OF_A_REPLY]
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
[ $# -gt 0 ] && shift
cmake --build "$build" --target bench_overhead > /dev/null
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$build/bin/bench_overhead" examples/tiny-stories "$@" 2> "$log" || { cat "$log" >&2; exit 1; }
