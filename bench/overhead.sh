#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures the overhead of HTTP and the engine per token, with a model that computes nothing.
# Usage: bench/overhead.sh [BUILD_FOLDER=build/release] [TOKENS_OF_A_REPLY]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
built bench_overhead
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$build/bin/bench_overhead" examples/tiny-stories "$@" 2> "$log" || { cat "$log" >&2; exit 1; }
