#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds what the test cluster consists of, once per machine and version of these sources, and prints its folder.
#   build.sh            build what is missing (cold about 13 minutes on 2 cores, 7 GB of Go caches; afterwards at once)
#   build.sh --where    print the folder only
# The folder: bin/{testcluster,coredns,helm} with links kubectl, etcd, kube-apiserver, ... and images/pause.tar.
set -eu
here=$(dirname "$(readlink -f "$0")")
. "$here/parts/cache.sh"
kubernetes=v1.36.3
helm=v3.21.4
cache=$(cluster_cache)
if [ "${1:-}" = --where ]; then echo "$cache"; exit 0; fi

stage() { # name command...: one line with its seconds; what the command says is only shown when it fails
  local name=$1 begin=$SECONDS; shift
  if ! "$@" > "$cache/log/$name" 2>&1; then
    tail -n 30 "$cache/log/$name" >&2
    echo "cluster build: $name failed; all of it in $cache/log/$name" >&2
    exit 1
  fi
  printf 'cluster build: %-12s %4d s\n' "$name" $((SECONDS - begin)) >&2
}

packages() {
  local missing=() pair
  for pair in containerd=containerd ctr=containerd runc=runc iptables=iptables nft=nftables conntrack=conntrack \
      ip=iproute2 pgrep=procps openssl=openssl python3=python3 gcc=gcc strip=binutils unshare=util-linux; do
    command -v "${pair%=*}" > /dev/null || missing+=("${pair#*=}")
  done
  [ -x /usr/lib/cni/ptp ] || [ -x /opt/cni/bin/ptp ] || missing+=(containernetworking-plugins)
  [ -n "$(find /usr/lib -maxdepth 2 -name libc.a -print -quit)" ] || missing+=(libc6-dev)
  [ ${#missing[@]} != 0 ] || return 0
  if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    echo "missing: ${missing[*]}. Install these packages (names of Debian), then run this again."; return 1
  fi
  apt-get install -y --no-install-recommends "${missing[@]}" ||
    { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; }
}

component_flags() { # what every component reports as its version
  local flags="-s -w" package pair minor=${kubernetes#v1.}
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    for pair in gitVersion=$kubernetes gitMajor=1 gitMinor=${minor%.*} gitTreeState=clean \
        gitCommit=0000000000000000000000000000000000000000 buildDate=2026-01-01T00:00:00Z; do
      flags="$flags -X $package.$pair"
    done
  done
  echo "$flags"
}

helm_flags() {
  local flags="-s -w -X helm.sh/helm/v3/internal/version.version=$helm" package minor=${kubernetes#v1.}
  for package in helm.sh/helm/v3/pkg/lint/rules helm.sh/helm/v3/pkg/chartutil; do
    flags="$flags -X $package.k8sVersionMajor=1 -X $package.k8sVersionMinor=${minor%.*}"
  done
  echo "$flags"
}

program() { # folder package linker-flags: a file that exists is complete, because it is renamed into place
  (cd "$here/$1" && CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS="-p=2 -buildvcs=false -mod=readonly" \
    nice "$go" build -trimpath -ldflags "$3" -o "$cache/bin/$1.new" "$2")
  mv "$cache/bin/$1.new" "$cache/bin/$1"
}

links() {
  local name
  for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl fake-gpu; do
    ln -sfn testcluster "$cache/bin/$name"
  done
}

pause_image() {
  mkdir -p "$cache/pause"
  gcc -static -Os -s -Wall -Wextra -Werror -o "$cache/pause/pause" "$here/pause.c"
  python3 "$here/oci.py" localhost/pause:test "$cache/images/pause.tar" \
    --layer "$cache/pause" --entrypoint '["/pause"]' --user 65535
}

mkdir -p "$cache"/{bin,images,log}
exec 9> "$cache/lock"
flock 9                       # two clones may want the same build at once
# The packages are checked even when the programs are there: the cache may come from another machine.
packages > "$cache/log/packages" 2>&1 || { tail -n 30 "$cache/log/packages" >&2; exit 1; }
[ ! -e "$cache/complete" ] || { echo "$cache"; exit 0; }
go=$("$here/parts/find-go.sh")
[ -x "$cache/bin/testcluster" ] || stage kubernetes program testcluster . "$(component_flags)"
[ -x "$cache/bin/coredns" ] || stage coredns program coredns . "-s -w"
[ -x "$cache/bin/helm" ] || stage helm program helm helm.sh/helm/v3/cmd/helm "$(helm_flags)"
links
[ -e "$cache/images/pause.tar" ] || stage pause pause_image
touch "$cache/complete"
echo "$cache"
