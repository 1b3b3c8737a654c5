#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# kernels.sh FOLDER [SOURCES]: compiles the CUDA kernels below SOURCES (default: this repository) with nvcc alone, into
# FOLDER/libpm_kernels.so; of this repository also FOLDER/bench_gpu_kernels, which needs nothing else. It is for
# machines with a GPU on which the programs of the kit do not start, and for the variants of pack.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:?usage: tools/gpu/kernels.sh FOLDER [SOURCES]} sources=${2:-$PWD}
wheel=$(echo "${PM_CACHE:-$HOME/.cache/parallelmodel}"/venv/lib/python3*/site-packages/nvidia/cu13)
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc "$wheel/bin/nvcc" 2> /dev/null | head -1 || true)
[ -n "$nvcc" ] || { echo "kernels.sh: no nvcc in PATH, /usr/local/cuda or $wheel" >&2; exit 1; }
mkdir -p "$folder/objects"
folder=$(cd "$folder" && pwd)
architecture=${PM_CUDA_ARCHITECTURE:-90}
flags=(-std=c++20 -O3 "-gencode=arch=compute_$architecture,code=sm_$architecture" -Xcompiler=-fPIC)

mapfile -t files < <(find "$sources/worker/ops/cuda" -name "*.cu")
[ $# != 1 ] || files+=(bench/gpu_kernels/{array,bench_gpu_kernels,cases,cases_attention,device_cuda}.cpp)
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -I{} sh -c \
  '"$@" -c {} -o "$0/$(basename {}).o"' "$folder/objects" "$nvcc" "${flags[@]}" "-I$sources"
# Programs that load the library bring the CUDA runtime; the benchmark has it inside.
"$nvcc" -shared -cudart=none "$folder"/objects/*.cu.o -o "$folder/libpm_kernels.so" -Xlinker -soname=libpm_kernels.so
[ $# != 1 ] || "$nvcc" "-L$(dirname "$nvcc")/../lib" "$folder"/objects/*.o -o "$folder/bench_gpu_kernels"
echo "kernels.sh: $folder for sm_$architecture"
