#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes images for the test cluster without a builder or a registry: what a program loads, and nothing else.
#   image.sh worker BUILD_DIR OUT.tar          localhost/parallelmodel-worker:test from
#                                              BUILD_DIR/bin/parallelmodel-worker
#   image.sh worker-cuda BUILD_DIR OUT.tar     localhost/parallelmodel-worker-cuda:test from a build with preset
#                                              cuda, 3.4 GB
#   image.sh controller BUILD_DIR OUT.tar      localhost/parallelmodel-controller:test
#   image.sh programs NAME OUT.tar PROGRAM...  image NAME with programs of this machine, for checks inside of pods
# The layers go from the most to the least stable: system libraries and files of /etc; LibTorch, stripped (350 MB, kept
# as a tar with its digest in $PM_CACHE/image); the program. They are not compressed, because compression would take
# longer than it saves on one machine. Every library lies in a folder that the dynamic linker searches by default, so
# the image needs no LD_LIBRARY_PATH.
set -eu
here=$(dirname "$(readlink -f "$0")")
store=${PM_CACHE:-$HOME/.cache/parallelmodel}/image
user=65532

usage() { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }

libraries() { # program...: the files they load, one per line
  local program answer
  for program; do
    answer=$(ldd "$program" 2>&1) || {
      [[ $answer == *"not a dynamic executable"* ]] && continue
      echo "ldd $program: $answer" >&2; return 1; }
    if grep "not found" <<< "$answer" >&2; then
      echo "$program needs a library that is not on this machine" >&2; return 1
    fi
    grep -o '/[^ ]*' <<< "$answer"
  done | sort -u
}

is_torch() { [[ $1 == */torch/lib/* || $1 == */nvidia/* ]]; }

system_layer() { # folder, libraries on the input
  local library
  while read -r library; do
    [ -z "$library" ] || is_torch "$library" || install -D -m 755 "$library" "$1$library"
  done
  mkdir -p "$1/etc/ssl/certs"
  cp -L /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/"
  printf 'root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:%s:%s:nonroot:/tmp:/sbin/nologin\n' $user $user \
    > "$1/etc/passwd"
  printf 'root:x:0:\nnonroot:x:%s:\n' $user > "$1/etc/group"
  echo "hosts: files dns" > "$1/etc/nsswitch.conf"
  install -d -m 1777 "$1/tmp"
}

torch_layer() { # folder-for-libraries; libraries on the input; prints the kept tar, nothing when there is none
  local files=() library key work
  while read -r library; do if is_torch "$library"; then files+=("$library"); fi; done
  [ ${#files[@]} != 0 ] || return 0
  key=$( { echo "$1"; openssl dgst -sha256 -r "${files[@]}" | sed 's#^\([0-9a-f]*\) .*/#\1 #'; } |
    sha256sum | cut -c 1-16)
  if [ ! -e "$store/torch-$key.tar.sha256" ]; then
    work=$(mktemp -d "$scratch/torch.XXXX")
    for library in "${files[@]}"; do
      install -D -m 755 "$library" "$work$1/$(basename "$library")"
      strip --strip-unneeded "$work$1/$(basename "$library")"
    done
    python3 "$here/oci.py" --pack "$work" "$scratch/torch.tar"
    mv "$scratch/torch.tar" "$store/torch-$key.tar"
    mv "$scratch/torch.tar.sha256" "$store/torch-$key.tar.sha256"
  fi
  echo "$store/torch-$key.tar"
}

image() { # name out entrypoint program...
  local name=$1 out=$2 entrypoint=$3 loaded program torch layers=(); shift 3
  for program; do [ -x "$program" ] || { echo "no program $program: build it first" >&2; return 1; }; done
  loaded=$(libraries "$@"; [ ${#by_name[@]} = 0 ] || printf '%s\n' "${by_name[@]}")
  system_layer "$scratch/system" <<< "$loaded"
  torch=$(torch_layer "$(dirname "$(grep -m 1 '/libc\.so\.6$' <<< "$loaded" || echo /usr/lib/none)")" <<< "$loaded")
  for program; do
    install -D -m 755 "$(readlink -f "$program")" "$scratch/program/usr/bin/$(basename "$program")"
    # A script stays as it is.
    strip --strip-unneeded "$scratch/program/usr/bin/$(basename "$program")" 2> /dev/null || true
  done
  layers=(--layer "$scratch/system" ${torch:+--layer "$torch"} --layer "$scratch/program")
  mkdir -p "$(dirname "$out")"
  python3 "$here/oci.py" "$name" "$out.new" "${layers[@]}" --entrypoint "$entrypoint" --user $user --workdir /
  mv "$out.new" "$out"
}

[ $# -ge 3 ] || usage
mkdir -p "$store"
scratch=$(mktemp -d "$store/work.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
by_name=()      # libraries that others load without being linked with them
case $1 in
worker | controller)
  image "localhost/parallelmodel-$1:test" "$3" "[\"/usr/bin/parallelmodel-$1\"]" "$2/bin/parallelmodel-$1" ;;
worker-cuda)
  wheels=$(dirname "$(ldd "$2/bin/parallelmodel-worker" | grep -o '/[^ ]*/libtorch_cuda\.so')")/../../nvidia
  by_name=("$wheels"/cudnn/lib/*.so.* "$wheels"/cu13/lib/libnvrtc*.so.*)
  image localhost/parallelmodel-worker-cuda:test "$3" '["/usr/bin/parallelmodel-worker"]' \
    "$2/bin/parallelmodel-worker" ;;
programs) name=$2 out=$3; shift 3; image "$name" "$out" "[]" "$@" ;;
*) usage ;;
esac
