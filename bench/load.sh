#!/bin/sh
# Bytes per rank of full-size models and what loading them costs: bench/load.sh [BUILD_FOLDER=build/release] [options of load.py]
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
[ $# -gt 0 ] && shift
exec "${PM_PYTHON:-${PM_CACHE:-$HOME/.cache/parallelmodel}/venv/bin/python}" bench/load.py --worker "$build/bin/parallelmodel-worker" "$@"
