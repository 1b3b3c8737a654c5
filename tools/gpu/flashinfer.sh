#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# flashinfer.sh FOLDER: compiles FlashInfer's prefill kernel for sm_90 into FOLDER/libflashinfer_prefill.so, which
# tools/gpu/libraries.py measures. Its headers (Apache-2.0) and those of CUTLASS (BSD-3-Clause) come out of the package
# of tools/gpu/flashinfer.txt, which is unpacked and not installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:?usage: tools/gpu/flashinfer.sh FOLDER}
cache=${PM_CACHE:-$HOME/.cache/parallelmodel}
digest=$(cat tools/gpu/flashinfer.txt tools/gpu/flashinfer.sh bench/gpu_kernels/flashinfer.cu | sha256sum | cut -c1-12)
[ ! -e "$folder/$digest" ] || exit 0
nvcc=$(echo "$cache"/venv/lib/python3*/site-packages/nvidia/cu13/bin/nvcc)
package=$(mktemp -d)
trap 'rm -rf "$package"' EXIT
"$cache/venv/bin/pip" download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$package" \
  -r tools/gpu/flashinfer.txt
"$cache/venv/bin/python" -m zipfile -e "$package"/*.whl "$package/files"
data=$package/files/flashinfer/data
rm -rf "$folder" && mkdir -p "$folder"
# The program that loads it brings the CUDA runtime.
"$nvcc" -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -shared -Xcompiler=-fPIC -cudart=none -w \
  -DFLASHINFER_ENABLE_F16 -DFLASHINFER_ENABLE_BF16 --expt-relaxed-constexpr \
  "-I$data/include" "-I$data/cutlass/include" "-I$data/cutlass/tools/util/include" \
  -o "$folder/libflashinfer_prefill.so" bench/gpu_kernels/flashinfer.cu
touch "$folder/$digest"
