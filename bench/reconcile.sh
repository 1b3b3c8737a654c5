#!/bin/bash
# The controller alone with a thousand ParallelModels, on a real API server: bench/reconcile.sh [BUILD_FOLDER=build/release] [options of scale/alone.py]
. "$(dirname "$0")/common.sh"
exec "$tests_python" bench/scale/alone.py --build "$build" "$@"
