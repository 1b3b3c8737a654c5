#!/bin/bash
# Serving beside Hugging Face, CTranslate2 and llama.cpp, in one run: bench/serving.sh [BUILD_FOLDER=build/release] [options of serving/run.py]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
[ $# -gt 0 ] && shift
python=$(bench/peers.sh)
exec "$python" bench/serving/run.py --worker "$build/bin/parallelmodel-worker" "$@"
