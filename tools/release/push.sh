#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sends the images and the chart of this folder to a registry: push.sh [--plain-http] REGISTRY
# REGISTRY is a host and a path, such as registry.example/parallelmodel. Needs skopeo or crane, logged in there, or the
# one that PUSH_WITH names. Digests stay as artefacts.txt has them.
set -eu
cd "$(dirname "$0")"
plain=''
if [ "${1:-}" = --plain-http ]; then plain=yes; shift; fi
[ $# = 1 ] || { sed -n 3,5p "$0" | cut -c 3- >&2; exit 2; }
registry=${1%/}
with=${PUSH_WITH:-$(command -v skopeo || command -v crane || true)}
[ -n "$with" ] || { echo "push.sh: there is neither skopeo nor crane: install one of them" >&2; exit 1; }
sha256sum --check --quiet SHA256SUMS

push_with_skopeo() { # file image
  case $1 in *.tar) source=oci-archive:$1 ;; *) source=oci:$1 ;; esac
  "$with" copy -q --preserve-digests ${plain:+--dest-tls-verify=false} "$source" "docker://$2"
  "$with" inspect ${plain:+--tls-verify=false} --raw "docker://$2" | sha256sum | sed 's/^\([0-9a-f]*\).*/sha256:\1/'
}

push_with_crane() { # file image: crane reads layouts that are folders
  layout=$1
  case $1 in *.tar) layout=$scratch/layout; rm -rf "$layout"; mkdir "$layout"; tar -C "$layout" -xf "$1" ;; esac
  "$with" push ${plain:+--insecure} "$layout" "$2" > /dev/null
  "$with" digest ${plain:+--insecure} "$2"
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
while read -r name tag digest file; do
  case $(basename "$with") in
  skopeo*) pushed=$(push_with_skopeo "$file" "$registry/$name:$tag") ;;
  *) pushed=$(push_with_crane "$file" "$registry/$name:$tag") ;;
  esac
  [ "$pushed" = "$digest" ] || {
    echo "push.sh: $registry/$name:$tag has digest $pushed, expected $digest" >&2; exit 1; }
  echo "$registry/$name:$tag@$digest"
done < artefacts.txt
