#!/bin/bash
# Decoding and prompts on a GPU beside Hugging Face, eager and compiled, in one run: bench/gpu.sh [BUILD_FOLDER=build/cuda] [options of gpu/measure.py]
set -- "${1:-build/cuda}" "${@:2}"
. "$(dirname "$0")/common.sh"
exec "$tests_python" bench/gpu/measure.py --worker "$worker" "$@"
