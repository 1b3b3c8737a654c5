#!/bin/bash
# Serving beside Hugging Face, CTranslate2 and llama.cpp, in one run: bench/serving.sh [BUILD_FOLDER=build/release] [options of serving/run.py]
. "$(dirname "$0")/common.sh"
python=$(bench/peers.sh)
exec "$python" bench/serving/run.py --worker "$worker" "$@"
