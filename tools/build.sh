#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Configures a CMake preset and builds the named targets: build.sh PRESET TARGET...
# Afterwards build/bin links to its programs.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?usage: tools/build.sh PRESET TARGET...}; shift
tools/machine.sh
log=${PM_CACHE:-$HOME/.cache/parallelmodel}/configure-$preset.log
mkdir -p build
exec 9> "build/$preset.lock"
flock 9  # stages of `make test` run beside each other, and two runs of ninja in one folder would spoil its log
cmake --preset "$preset" > "$log" 2>&1 || { cat "$log"; exit 1; }
cmake --build --preset "$preset" --target "$@"
ln -sfn "$preset/bin" build/bin
