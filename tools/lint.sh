#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# lint.sh: formats (clang-format, ruff, rustfmt), linters (ruff, shellcheck, yamllint, clang-tidy on the C++ files that
# changed) and the rules of tests/structure.
# lint.sh --fix: formats in place instead.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${PM_CACHE:-$HOME/.cache/parallelmodel}
bin=$cache/lint/bin
mapfile -t cpp < <(git ls-files '*.cpp' '*.h' '*.cu' '*.cuh')
mapfile -t scripts < <(git ls-files '*.sh' .ci/run)
mapfile -t yaml < <(git ls-files '*.yaml' '*.yml' | grep -v '^helm/parallelmodel/templates/')

if [ "${1:-}" = --fix ]; then
  "$bin/clang-format" -i "${cpp[@]}"
  "$bin/ruff" format -q .
  "$bin/ruff" check -q --fix .
  if cargo fmt --version > /dev/null 2>&1; then (cd worker/tokenizer/ffi && cargo fmt); fi
  exit 0
fi

failed=()
check() { # name command...: runs all checks, so that one run shows everything
  local name=$1; shift
  "$@" || { echo "lint: $name failed" >&2; failed+=("$name"); }
}
check clang-format "$bin/clang-format" --dry-run -Werror "${cpp[@]}"
check "ruff format" "$bin/ruff" format -q --check .
check ruff "$bin/ruff" check -q .
check shellcheck "$bin/shellcheck" -S warning "${scripts[@]}"
check yamllint "$bin/yamllint" -s "${yaml[@]}"
if cargo fmt --version > /dev/null 2>&1; then check rustfmt sh -c 'cd worker/tokenizer/ffi && cargo fmt --check'; fi
check clang-tidy "$cache/venv/bin/python" tools/tidy.py "$bin/clang-tidy"
check tests/structure "$cache/venv/bin/python" -m pytest -q tests/structure
if [ ${#failed[@]} -gt 0 ]; then
  printf 'lint: %s failed, see above; `make fmt` mends formats\n' "${failed[@]}" >&2
  exit 1
fi
