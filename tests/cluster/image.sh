#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes images for the test cluster within seconds, of programs that are built already: for the developer's loop,
# because the Dockerfile compiles every program again. tests/image compares them with the images of the Dockerfile.
#   image.sh worker BUILD_DIR OUT.tar          localhost/parallelmodel-worker:test from
#                                              BUILD_DIR/bin/parallelmodel-worker
#   image.sh worker-cuda BUILD_DIR OUT.tar     localhost/parallelmodel-worker-cuda:test from a build with preset
#                                              cuda, 3.4 GB
#   image.sh controller BUILD_DIR OUT.tar      localhost/parallelmodel-controller:test
#   image.sh programs NAME OUT.tar PROGRAM...  image NAME with programs of this machine, for checks inside of pods
# tools/image/parts.sh has the parts, one layer each. LibTorch, stripped (350 MB), is kept as a tar with its digest in
# $PM_CACHE/image. Layers are not compressed, because compression would take longer than it saves on one machine.
set -eu
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tools/image/parts.sh
. "$here/../../tools/image/parts.sh"
store=${PM_CACHE:-$HOME/.cache/parallelmodel}/image

usage() { sed -n '3,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }

torch_layer() { # folder-for-libraries; files on the input; prints the kept tar, nothing when there is none
  local files=() key work
  mapfile -t files
  [ ${#files[@]} != 0 ] || return 0
  key=$( { echo "$1"; openssl dgst -sha256 -r "${files[@]}" | sed 's#^\([0-9a-f]*\) .*/#\1 #'; } |
    sha256sum | cut -c 1-16)
  if [ ! -e "$store/torch-$key.tar.sha256" ]; then
    work=$(mktemp -d "$scratch/torch.XXXX")
    printf '%s\n' "${files[@]}" | torch_part "$work" "$1"
    python3 "$here/oci.py" --pack "$work" "$scratch/torch.tar"
    mv "$scratch/torch.tar" "$store/torch-$key.tar"
    mv "$scratch/torch.tar.sha256" "$store/torch-$key.tar.sha256"
  fi
  echo "$store/torch-$key.tar"
}

image() { # name out entrypoint program...
  local name=$1 out=$2 entrypoint=$3 loaded program torch layers=(); shift 3
  for program; do [ -x "$program" ] || { echo "no program $program: build it first" >&2; return 1; }; done
  loaded=$(libraries "$@")
  if grep -q '/libtorch_cuda\.so$' <<< "$loaded"; then loaded+=$'\n'$(loaded_by_name "$1"); fi
  system_part "$scratch/system" <<< "$loaded"
  torch=$(libtorch_only <<< "$loaded" | torch_layer "$(torch_folder <<< "$loaded")")
  program_part "$scratch/program" "$@"
  layers=(--layer "$scratch/system" ${torch:+--layer "$torch"} --layer "$scratch/program")
  mkdir -p "$(dirname "$out")"
  python3 "$here/oci.py" "$name" "$out.new" "${layers[@]}" --entrypoint "$entrypoint" --user $user --workdir /
  mv "$out.new" "$out"
}

[ $# -ge 3 ] || usage
mkdir -p "$store"
scratch=$(mktemp -d "$store/work.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
case $1 in
worker | worker-cuda | controller)
  program=parallelmodel-${1%-cuda}
  notices_part "$scratch/program"
  headers_part "$scratch/program"
  image "localhost/parallelmodel-$1:test" "$3" "[\"/usr/bin/$program\"]" "$2/bin/$program" ;;
programs) name=$2 out=$3; shift 3; image "$name" "$out" "[]" "$@" ;;
*) usage ;;
esac
