#!/bin/bash
# Steps whose weights come together a layer at a time, measured beside the planner's model with this machine's figures: bench/gathered.sh [BUILD_FOLDER=build/release] [options of gathered/run.py]
. "$(dirname "$0")/common.sh"
built bench_gathered
exec "$tests_python" bench/gathered/run.py --program "$build/bin/bench_gathered" "$@"
