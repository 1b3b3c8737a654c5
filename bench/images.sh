#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures images among the tokens of a prompt against Hugging Face, in one run.
# Usage: bench/images.sh [BUILD_FOLDER=build/release] [options of images/run.py]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
exec "$tests_python" bench/images/run.py --worker "$worker" "$@"
