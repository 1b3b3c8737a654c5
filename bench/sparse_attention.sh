#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures attention by a window and by blocks against its length, beside dense attention and beside transformers, in
# one run. Usage: bench/sparse_attention.sh [BUILD_FOLDER=build/release] [options of run.py, see --help]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
built bench_sparse_attention
exec "$tests_python" bench/sparse_attention/run.py --program "$build/bin/bench_sparse_attention" "$@"
