#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Collects what an image holds, in a stage of the Dockerfile: root.sh PROGRAM OUT
# One folder for each layer, from the most to the least stable: OUT/system, OUT/torch, OUT/program.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/parts.sh"
program=${1:?usage: tools/image/root.sh PROGRAM OUT} out=${2:?usage: tools/image/root.sh PROGRAM OUT}

loaded=$(libraries "$program")
if grep -q '/libtorch_cuda\.so$' <<< "$loaded"; then loaded+=$'\n'$(loaded_by_name "$program"); fi
mkdir -p "$out"/{system,torch,program}
system_part "$out/system" <<< "$loaded"
libtorch_only <<< "$loaded" | torch_part "$out/torch" "$(torch_folder <<< "$loaded")"
program_part "$out/program" "$program"
notices_part "$out/program"
headers_part "$out/program"
