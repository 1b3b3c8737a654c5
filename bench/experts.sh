#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures the decoding of a mixture of experts against a plain read of the bytes that a token needs, in one run.
# Usage: bench/experts.sh [BUILD_FOLDER=build/release] [options of experts/run.py]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
built bench_read
exec "$tests_python" bench/experts/run.py --worker "$worker" --read "$build/bin/bench_read" "$@"
