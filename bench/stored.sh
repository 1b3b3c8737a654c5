#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures the decoding of every quantized format on one thread against a plain read of the same dense weights, in turns
# in one run. The rates count dense bytes. Read the shares of the plain read: the load of the machine is in all rows.
# Usage: bench/stored.sh [BUILD_FOLDER=build/release] [ROUNDS] [FORMAT]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
built bench_stored
exec "$build/bin/bench_stored" "$@"
