#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Prints the perplexity of the trained example in each precision on stories that it has not seen. Read the factors over
# F32: a small model on simple text loses more than a large one. It takes seconds and depends on no other load.
# Usage: bench/quality.sh [BUILD_FOLDER=build/release]
# shellcheck source=bench/common.sh
. "$(dirname "$0")/common.sh"
exec env PM_WORKER="$worker" "$tests_python" -m pytest -q -s tests/parity/test_perplexity.py "$@"
