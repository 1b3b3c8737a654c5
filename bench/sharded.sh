#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures steps with fully sharded weights (all-gathered per layer) against the planner's model with this machine's
# parameters.
# Usage: bench/sharded.sh [BUILD_FOLDER=build/release] [options of sharded/run.py]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
built bench_sharded
exec "$tests_python" bench/sharded/run.py --program "$build/bin/bench_sharded" "$@"
