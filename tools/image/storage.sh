# shellcheck shell=bash disable=SC2154
# SPDX-License-Identifier: Apache-2.0
# buildah with storage of its own, and the base image of the Dockerfile. The caller sets $home, the folder of both.
base=localhost/debian:trixie-slim

# The driver overlay needs a kernel and a file system that allow it. vfs copies whole layers: it is slow, and works
# inside of any sandbox.
choose_driver() {
  driver=overlay
  [ ! -d "$home/vfs" ] || driver=vfs
  if [ ! -d "$home/$driver" ] && ! overlay_works > /dev/null 2>&1; then driver=vfs; fi
}

overlay_works() {
  local container folder
  container=$(buildah_here from scratch) && folder=$(buildah_here mount "$container") && touch "$folder/file" &&
    buildah_here rm "$container"
}

buildah_here() {
  TMPDIR=$home/tmp buildah --root "$home/$driver" --runroot "$home/run" --storage-driver "$driver" "$@"
}

id_of() { buildah_here inspect --type image --format '{{.FromImageID}}' "$1"; }

base_image() { # sources in deb822 format: makes the base image with debootstrap, once
  local mirror root container
  ! id_of $base > /dev/null 2>&1 || return 0
  mirror=$(sed -n 's/^URIs: //p' "$1" | head -1)
  root=$home/debian
  say "making $base"
  rm -rf --one-file-system "$root"
  debootstrap --variant=minbase --keyring=/usr/share/keyrings/debian-archive-keyring.gpg trixie "$root" "$mirror" \
    > "$home/debootstrap.log" 2>&1 || { tail -20 "$home/debootstrap.log" >&2; return 1; }
  # What the image of that name leaves out; and the mirror, which is this machine's own matter.
  rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/*log "$root"/etc/apt/sources.list \
    "$root"/usr/share/{man,locale}/*
  container=$(buildah_here from scratch)
  buildah_here add -q "$container" "$root" / > /dev/null
  buildah_here commit -q --rm --format oci "$container" $base > /dev/null
  rm -rf --one-file-system "$root"
}
