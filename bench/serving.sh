#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures serving against Hugging Face, CTranslate2 and llama.cpp, in one run.
# Usage: bench/serving.sh [BUILD_FOLDER=build/release] [options of serving/run.py]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
python=$(bench/peers.sh)
exec "$python" bench/serving/run.py --worker "$worker" "$@"
