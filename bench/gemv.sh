#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures products of few rows against ATen's and against a plain read of the weights, in one run.
# Usage: bench/gemv.sh [BUILD_FOLDER=build/release] [ROUNDS] [THREADS] [TYPES] [MOST_ROWS]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
built bench_gemv
exec "$build/bin/bench_gemv" "$@"
