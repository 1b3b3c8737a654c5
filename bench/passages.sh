#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures the search in an index of passages against a plain read of the same bytes, in one run.
# Usage: bench/passages.sh [BUILD_FOLDER=build/release] [PASSAGES] [WIDTH] [ROUNDS] [THREADS]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
built bench_passages
exec "$build/bin/bench_passages" "$@"
