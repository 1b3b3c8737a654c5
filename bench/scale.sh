#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures the controller against LeaderWorkerSet's with a thousand models on a hundred nodes of KWOK, in one run.
# Usage: bench/scale.sh [BUILD_FOLDER=build/release] [options of scale/run.py]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
exec "$tests_python" bench/scale/run.py --build "$build" "$@"
