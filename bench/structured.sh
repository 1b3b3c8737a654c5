#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures answers that a JSON Schema constrains against free ones, beside llama.cpp's, in one run.
# Usage: bench/structured.sh [BUILD_FOLDER=build/release] [options of structured/run.py]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
built unit_tokenizer
python=$(bench/peers.sh)
exec "$python" bench/structured/run.py --worker "$worker" --masks "$build/tests/unit_tokenizer" "$@"
