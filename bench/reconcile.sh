#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures the controller alone with a thousand ParallelModels, on a real API server.
# Usage: bench/reconcile.sh [BUILD_FOLDER=build/release] [options of scale/alone.py]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
exec "$tests_python" bench/scale/alone.py --build "$build" "$@"
