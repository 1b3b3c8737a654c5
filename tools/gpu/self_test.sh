#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# self_test.sh ARCHIVE [PYTHON]: unpacks the kit into an empty folder and starts every program there as on a machine
# that has no GPU, with an empty environment: each starts, and says why it does no more. PYTHON is one that has torch.
set -euo pipefail
cd "$(dirname "$0")/../.."
archive=${1:?usage: tools/gpu/self_test.sh ARCHIVE [PYTHON]} python=${2:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tar -xJf "$archive" -C "$folder"
mkdir "$folder/nodes"  # in place of /dev
kit=$folder/kit
count=0

check() { # words that the output must have, program, arguments...
  local words=$1 output; shift
  output=$(env -i PATH=/usr/bin:/bin HOME="$folder" PM_PYTHON="$python" PM_GPU_NODES="$folder/nodes" \
    "$@" 2>&1 < /dev/null) || true
  grep -qF -- "$words" <<< "$output" \
    || { printf 'self_test: %s does not say "%s":\n%s\n' "$*" "$words" "$output" >&2; exit 1; }
  count=$((count + 1))
}

check "no GPU here: no device node of one" "$kit/tests/cuda_device" --gtest_filter=Norms.*:Gemvs.*
check "no GPU here: no device node of one" "$kit/tests/cuda_nccl"
check "skipped: no GPU here" "$kit/bin/bench_gpu_kernels"
check "gemv bf16 x f32 4096->6144, 1 row" "$kit/bin/bench_gpu_kernels" --list
check "cpu" "$kit/bin/bench_ops" --list
check "no such device is visible" "$kit/bin/parallelmodel-worker" generate --model examples/tiny-stories --device cuda \
  --input-ids 1
check '"sequences"' "$kit/bin/parallelmodel-worker" generate --model examples/tiny-stories --input-ids 1,2,3 --json \
  --max-new-tokens 2
# The answers of transformers are found under the key of the manifest, whatever versions are installed.
check "every answer was found" "$python" tools/gpu/pack_oracle.py --check "$kit"
# The stages say why they are skipped, and the results are written.
check "skipped" "$python" tools/gpu/run.py first --kit "$kit" --cache "$folder/cache" --out "$folder/out" --budget 60 \
  --only kernels,smoke
check '"state": "skipped"' cat "$folder/out/results.jsonl"
echo "self_test: $count checks of $archive"
