#!/bin/bash
# Products of few rows beside ATen's and beside a plain read of the weights, in one run: bench/gemv.sh [BUILD_FOLDER=build/release] [ROUNDS] [THREADS]
. "$(dirname "$0")/common.sh"
built bench_gemv
exec "$build/bin/bench_gemv" "$@"
