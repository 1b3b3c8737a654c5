#!/bin/bash
# Decoding of one stream beside Hugging Face, CTranslate2, llama.cpp and a plain read, in one run: bench/decode.sh [BUILD_FOLDER=build/release] [options of decode/run.py]
. "$(dirname "$0")/common.sh"
built bench_read
python=$(bench/peers.sh)
exec "$python" bench/decode/run.py --worker "$worker" --read "$build/bin/bench_read" "$@"
