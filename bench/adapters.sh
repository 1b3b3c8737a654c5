#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures the throughput of one server with LoRA adapters against the base model, in one run.
# Usage: bench/adapters.sh [BUILD_FOLDER=build/release] [options of adapters/run.py]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
exec "$tests_python" bench/adapters/run.py --worker "$worker" "$@"
