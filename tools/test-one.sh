#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test-one.sh BUILD_FOLDER SELECTION...: runs one test or a few.
#   A selection that begins with tests/ goes to pytest with all that follows it:   tests/parity/test_forward.py -k gpt2
#   Anything else is a GoogleTest filter, tried in every unit-test program:         'Scheduler.*'
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: tools/test-one.sh BUILD_FOLDER SELECTION...}; shift
selection=${1:?name a test: make test-one T=Suite.Case, or T=tests/parity/test_forward.py}
if [[ $selection == tests/* ]]; then
  exec "${PM_CACHE:-$HOME/.cache/parallelmodel}/venv/bin/python" -m pytest -q "$@"
fi
found=0
for program in "$build"/tests/*; do
  [ -f "$program" ] && [ -x "$program" ] || continue
  tests=$("$program" --gtest_list_tests --gtest_filter="$selection" 2> /dev/null | grep -c '^  ' || true)
  [ "$tests" != 0 ] || continue
  found=1
  "$program" --gtest_filter="$selection"
done
[ $found = 1 ] || { echo "no GoogleTest matches '$selection' in $build/tests; try 'Suite.*'" >&2; exit 1; }
