#!/bin/bash
# How well a pipeline's schedule keeps its stages at work, beside GPipe's m / (m + p - 1): bench/pipeline.sh [BUILD_FOLDER=build/release]
. "$(dirname "$0")/common.sh"
built bench_pipeline
exec "$build/bin/bench_pipeline" "$@"
