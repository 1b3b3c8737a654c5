#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures the seconds from the start of a process to the first token, beside transformers.
# Usage: bench/first_token.sh [BUILD_FOLDER=build/release] [options of first_token.py]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
exec "$tests_python" bench/first_token.py --worker "$worker" "$@"
