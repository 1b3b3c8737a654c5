#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# pack.sh [--variant NAME=REVISION]...: builds build/kit.tar.xz, which has what a machine with a GPU, without a network
# and without our libraries needs to run the stages of tools/gpu/run.py: programs for one architecture, the libraries
# that are neither torch's nor the system's, checkpoints with answers of transformers. Then it unpacks the archive into
# an empty folder and starts every program there. A variant is the kernel library of another revision with the same
# headers; stage "variants" compares them.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=${PM_CACHE:-$HOME/.cache/parallelmodel}
python=$cache/venv/bin/python
build=build/kit kit=build/kit/pack/kit archive=$PWD/build/kit.tar.xz
max_bytes=$((24 << 20))  # of the archive, which travels together with a checkout of the repository
# each program and its folder in the kit
programs=(bin/parallelmodel-worker bin/bench_gpu_kernels bin/bench_ops tests/cuda_device tests/cuda_nccl)

build() {
  tools/deps.sh cuda
  cmake --preset kit > "$cache/configure-kit.log" 2>&1 || { cat "$cache/configure-kit.log"; exit 1; }
  cmake --build --preset kit
  tools/gpu/flashinfer.sh "$cache/flashinfer"
}

torch_folders() { # the folders of torch's libraries, as launch.sh finds them
  "$python" -c 'import glob, importlib.util, os
root = os.path.dirname(importlib.util.find_spec("torch").origin)
print(":".join([root + "/lib", *glob.glob(os.path.dirname(root) + "/nvidia/*/lib")]))'
}

libraries() { # prints the libraries of the programs that are neither torch's, the kernels' nor the system's
  local torch; torch=$(torch_folders)
  LD_LIBRARY_PATH=$build/lib:$torch ldd "$kit"/libexec/* | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u \
    | grep -vE '/site-packages/|/lib(c|m|dl|rt|util|pthread|stdc\+\+|gcc_s|pm_kernels)\.so'
}

stage() { # the folder of the kit, without its manifest
  rm -rf "$kit"
  mkdir -p "$kit"/{bin,tests,lib,libexec,oracle,variants}
  for program in "${programs[@]}"; do
    cp "$build/$program" "$kit/libexec/"
    cp tools/gpu/launch.sh "$kit/$program"
  done
  cp "$build/lib/libpm_kernels.so" "$cache/flashinfer/libflashinfer_prefill.so" "$kit/lib/"
  libraries | xargs -I{} cp -L {} "$kit/lib/"
  for variant; do
    local name=${variant%%=*} revision=${variant#*=} sources
    sources=$(mktemp -d)
    git archive "$revision" worker/ops contract | tar -x -C "$sources"
    for header in worker/ops/cuda/*.h worker/ops/cuda/*/*.h worker/ops/sample_batch.h contract/kv_block.h; do
      cmp "$header" "$sources/$header" || { echo "pack.sh: $revision has other parameters of kernels" >&2; exit 1; }
    done
    tools/gpu/kernels.sh "$kit/variants/$name" "$sources"
    rm -rf "$sources" "$kit/variants/$name/objects"
  done
  strip --strip-unneeded "$kit"/lib/*.so* "$kit"/libexec/*
  "$python" tools/gpu/pack_oracle.py "$kit/oracle"
}

pack() { # the archive, unless it holds the same already
  "$python" tools/gpu/manifest.py "$kit"
  local unpacked bytes
  if ! [ -e "$archive" ] || ! cmp -s "$kit/manifest.json" "$build/packed.json"; then
    tar -C "$build/pack" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -c kit | xz -T0 -6 > "$archive.new"
    mv "$archive.new" "$archive"
    cp "$kit/manifest.json" "$build/packed.json"
  fi
  unpacked=$(du -sb "$kit" | cut -f1) bytes=$(stat -c %s "$archive")
  [ "$bytes" -le "$max_bytes" ] || { echo "pack.sh: the kit has $bytes bytes, at most $max_bytes are allowed"; exit 1; }
  echo "pack.sh: $((unpacked >> 20)) MiB in $(((bytes + 1048575) >> 20)) MiB: $archive"
}

variants=()
while [ $# -gt 0 ]; do
  case $1 in
  --variant) variants+=("${2:?--variant NAME=REVISION}"); shift 2 ;;
  *) sed -n 3,9p "$0" >&2; exit 2 ;;
  esac
done
build
stage "${variants[@]}"
pack
tools/gpu/self_test.sh "$archive" "$python"
