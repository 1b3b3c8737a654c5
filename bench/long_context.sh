#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures decoding behind long contexts, with the KV cache in the type of the model and in I8, in one run.
# Usage: bench/long_context.sh [BUILD_FOLDER=build/release] [options of long_context/run.py]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
exec "$tests_python" bench/long_context/run.py --worker "$worker" "$@"
