#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures decode and prefill on a GPU against Hugging Face, eager and compiled, in one run.
# Usage: bench/gpu.sh [BUILD_FOLDER=build/cuda] [options of gpu/measure.py]
set -- "${1:-build/cuda}" "${@:2}"
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
exec "$tests_python" bench/gpu/measure.py --worker "$worker" "$@"
