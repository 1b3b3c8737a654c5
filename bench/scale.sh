#!/bin/bash
# The controller with a thousand models on a hundred nodes of KWOK, beside LeaderWorkerSet's, in one run: bench/scale.sh [BUILD_FOLDER=build/release] [options of scale/run.py]
. "$(dirname "$0")/common.sh"
exec "$tests_python" bench/scale/run.py --build "$build" "$@"
