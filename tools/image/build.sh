#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds targets of the Dockerfile by buildah, as root and without a daemon: build.sh [--fresh] OUT TARGET...
# Targets are worker, controller, kubectl-pm and worker-cuda. OUT/TARGET.tar is an OCI archive,
# localhost/parallelmodel-TARGET:test.
# A target whose sources, packages and arguments are those of OUT/TARGET.key is not built again.
#   --fresh     packages of today: makes the base image and the stage with compilers again
#   VERSION, REVISION in the environment: labels of the images
# Everything is kept in $PM_CACHE/buildah: layers in overlay or vfs, results of the compilers and wheels in tmp.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
cache=${PM_CACHE:-$HOME/.cache/parallelmodel}
home=$cache/buildah
usage() { sed -n 3,9p "$0" | cut -c 3- >&2; exit 2; }
say() { printf 'image: %s\n' "$*"; }

fresh=
if [ "${1:-}" = --fresh ]; then fresh=yes; shift; fi
[ $# -ge 2 ] || usage
out=$1; shift
for target; do case $target in worker | controller | kubectl-pm | worker-cuda) ;; *) usage ;; esac; done
[ "$(id -u)" = 0 ] || { say "buildah with chroot isolation needs root" >&2; exit 1; }
PM_CACHE=$cache tools/deps.sh image
mkdir -p "$home/tmp" "$out"
exec 9> "$home/lock"
flock 9  # one build at a time: they share the caches of the compiler
. tools/image/secrets.sh
. tools/image/storage.sh
secrets=$(mktemp -d)
trap 'rm -rf "$secrets"' EXIT
write_secrets "$secrets"

choose_driver
buildah_here rm --all > /dev/null  # what a build that failed has left
if [ -n "$fresh" ]; then
  rm -f "$home/tools.key"
  buildah_here rmi --all --force > /dev/null 2>&1 || true
fi
base_image "$secrets/apt"

arguments=(--isolation chroot --network host --pull-never --layers --format oci --timestamp 0)
arguments+=(--build-arg "REVISION=${REVISION:-unknown}")
[ -z "${VERSION:-}" ] || arguments+=(--build-arg "VERSION=$VERSION")
for secret in "$secrets"/*; do arguments+=(--secret "id=$(basename "$secret"),src=$secret"); done

bud() { # target name: its log goes to $home/TARGET.log
  local begin=$SECONDS
  buildah_here bud "${arguments[@]}" --target "$1" -t "$2" . > "$home/$1.log" 2>&1 || {
    tail -40 "$home/$1.log" >&2; say "$1 failed; the whole log is $home/$1.log" >&2; exit 1; }
  say "$1 built in $((SECONDS - begin)) s"
}

# This stage has a name, so that it outlives the removal of layers at the end.
tools=localhost/parallelmodel-tools:build
tools_key=$({ sed '/^FROM tools/,$d' Dockerfile; cat tools/deps.sh; } | sha256sum | cut -d' ' -f1)
if [ "$(cat "$home/tools.key" 2> /dev/null)" != "$tools_key" ] || ! id_of $tools > /dev/null 2>&1; then
  bud tools $tools
  echo "$tools_key" > "$home/tools.key"
fi
mapfile -t context < <(sed -n 's/^!//p' .dockerignore)
key=$( { tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=a+rX,go-w --exclude=__pycache__ \
    -c Dockerfile .dockerignore "${context[@]}"
  echo "${VERSION:-} ${REVISION:-}"
  id_of $tools
} | sha256sum | cut -d' ' -f1)
for target; do
  name=localhost/parallelmodel-$target
  if [ -e "$out/$target.tar" ] && [ "$(cat "$out/$target.key" 2> /dev/null)" = "$key" ]; then
    say "$target: nothing has changed"
  else
    rm -f "$out/$target.key"
    bud "$target" "$name:built"
    rm -rf "$home/layout"
    buildah_here push -q "$name:built" "oci:$home/layout:built"
    python3 tests/cluster/oci.py --archive "$home/layout" "$name:test" "$out/$target.tar.new"
    mv "$out/$target.tar.new" "$out/$target.tar"
    touch "$home/$target.built"
    echo "$key" > "$out/$target.key"
  fi
  say "$target: $(python3 tests/cluster/oci.py --size "$out/$target.tar")"
done
rm -rf "$home/layout"
buildah_here rmi --prune > /dev/null
