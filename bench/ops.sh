#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks every operation of worker/ops against fp64, and times it against ATen, on every device of this machine.
# Usage: bench/ops.sh [BUILD_FOLDER=build/release] [options of bench_ops, see --help]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
built bench_ops
exec "$build/bin/bench_ops" "$@"
