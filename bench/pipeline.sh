#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures how well a pipeline's schedule keeps its stages busy, compared with GPipe's m / (m + p - 1).
# Usage: bench/pipeline.sh [BUILD_FOLDER=build/release]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
built bench_pipeline
exec "$build/bin/bench_pipeline" "$@"
