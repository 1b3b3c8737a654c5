#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the compiler: ptxas.sh COMPILER... Its output (ptxas -v: registers, spills) goes to OBJECT.ptxas, and to the
# terminal only when it fails or warns.
set -uo pipefail
object=$(for ((i = 1; i < $#; i++)); do [ "${!i}" = -o ] && j=$((i + 1)) && echo "${!j}"; done | tail -1)
said=${object:-/tmp/nvcc}.ptxas
"$@" 2> "$said"
code=$?
if [ $code != 0 ]; then cat "$said" >&2; else grep -E 'warning|error' "$said" >&2; fi
exit $code
