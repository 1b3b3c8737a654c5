# Sourced by the scripts beside it: the repository as working folder, the first argument as $build, the rest left in "$@", and what they share.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build/release}
[ $# -eq 0 ] || shift
worker=$build/bin/parallelmodel-worker
tests_python=${PM_PYTHON:-${PM_CACHE:-$HOME/.cache/parallelmodel}/venv/bin/python}
built() { cmake --build "$build" --target "$@" > /dev/null; }    # programs that only benchmarks need
