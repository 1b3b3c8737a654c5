#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures speculative decoding on text that repeats its prompt and on random text, with and without, in one run.
# Usage: bench/speculation.sh [BUILD_FOLDER=build/release] [options of speculation/run.py]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
exec "$tests_python" bench/speculation/run.py --worker "$worker" "$@"
