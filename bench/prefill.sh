#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures prompts against Hugging Face, CTranslate2 and llama.cpp, in one run.
# Usage: bench/prefill.sh [BUILD_FOLDER=build/release] [options of prefill/run.py]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
python=$(bench/peers.sh)
exec "$python" bench/prefill/run.py --worker "$worker" "$@"
