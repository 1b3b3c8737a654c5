# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The scripts of this folder source it. It changes to the repository, sets $build to the first argument, leaves the
# other arguments in "$@", and defines what these scripts share.
# shellcheck disable=SC2034  # The sourcing scripts read the variables.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build/release}
[ $# -eq 0 ] || shift
worker=$build/bin/parallelmodel-worker
tests_python=${PM_PYTHON:-${PM_CACHE:-$HOME/.cache/parallelmodel}/venv/bin/python}
built() { cmake --build "$build" --target "$@" > /dev/null; }    # programs that only benchmarks need
