#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures the bytes per rank of full-size models and the cost of loading them.
# Usage: bench/load.sh [BUILD_FOLDER=build/release] [options of load.py]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
exec "$tests_python" bench/load.py --worker "$worker" "$@"
