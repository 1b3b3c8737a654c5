#!/bin/bash
# Bytes per rank of full-size models and what loading them costs: bench/load.sh [BUILD_FOLDER=build/release] [options of load.py]
. "$(dirname "$0")/common.sh"
exec "$tests_python" bench/load.py --worker "$worker" "$@"
