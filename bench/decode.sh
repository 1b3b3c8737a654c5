#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures the decoding of one stream against Hugging Face, CTranslate2, llama.cpp and a plain read, in one run.
# Usage: bench/decode.sh [BUILD_FOLDER=build/release] [options of decode/run.py]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
built bench_read
python=$(bench/peers.sh)
exec "$python" bench/decode/run.py --worker "$worker" --read "$build/bin/bench_read" "$@"
