#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds a program that only some tests and measurements need, from its Go module, and prints its path.
# It builds once per machine and version.
#   build.sh NAME        NAME is a folder here: crane (a registry, and a client of registries), kubescore, kubelinter
#                        (rules for manifests), kwok (pods without kubelets), lws (LeaderWorkerSet's controller, to
#                        measure beside ours), oldest (the API server of the oldest Kubernetes that is supported),
#                        kthena (a gateway that reads InferencePools), epp (the endpoint picker of InferencePools),
#                        traefik (a gateway that reads HTTPRoutes), kueue (queues with quotas), containerd and
#                        containerd-shim (a runtime with image volumes), dra (a driver with mock devices for claims),
#                        keda and keda-adapter (autoscaling by any metric, and what hands its metrics to the HPA),
#                        prometheus-adapter (hands those of pods to it), certmanager (certificates), externalsecrets
#                        (Secrets from vaults)
#   build.sh --built NAME             its path if it is built, else exit status 3
#   build.sh --source NAME [MODULE]   the folder of the source of its module, or of one that it depends on
# A cold build on two otherwise idle cores takes 1 min for crane, dra and kubescore, 2 to 3 min each for kwok,
# kubelinter, lws, kthena, epp, kueue, containerd and the others, 5 min for oldest and traefik, 6 min for keda;
# externalsecrets took 10 min beside other work.
# Modules are verified against go.sum.
set -eu
here=$(dirname "$(readlink -f "$0")")
. "$here/../parts/cache.sh"
declare -A package=(
  [crane]=github.com/google/go-containerregistry/cmd/crane
  [kubescore]=github.com/zegl/kube-score/cmd/kube-score
  [kubelinter]=golang.stackrox.io/kube-linter/cmd/kube-linter
  [kwok]=sigs.k8s.io/kwok/cmd/kwok
  [lws]=sigs.k8s.io/lws/cmd
  [kthena]=github.com/volcano-sh/kthena/cmd/kthena-router
  [epp]=sigs.k8s.io/gateway-api-inference-extension/cmd/epp
  [containerd]=github.com/containerd/containerd/v2/cmd/containerd
  [containerd-shim]=github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2
  [keda]=github.com/kedacore/keda/v2/cmd/operator
  [keda-adapter]=github.com/kedacore/keda/v2/cmd/adapter
  [prometheus-adapter]=sigs.k8s.io/prometheus-adapter/cmd/adapter
  [certmanager]=.
  [externalsecrets]=github.com/external-secrets/external-secrets
  [kueue]=sigs.k8s.io/kueue/cmd/kueue
  [dra]=sigs.k8s.io/dra-example-driver/cmd/dra-example-kubeletplugin
  [traefik]=github.com/traefik/traefik/v3/cmd/traefik
  [oldest]=k8s.io/kubernetes/cmd/kube-apiserver)

usage() { sed -n '2,16s/^# \{0,1\}//p' "$0" >&2; exit 2; }

flags_of() { # what the program says of its version, where that matters
  [ "$1" = oldest ] || return 0
  local version minor name pair
  version=$(sed -n 's/^\tk8s.io\/kubernetes \(v[0-9.]*\).*/\1/p' "$here/oldest/go.mod")
  minor=${version#v1.}
  for name in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    for pair in gitVersion="$version" gitMajor=1 gitMinor="${minor%.*}" gitTreeState=clean \
        gitCommit=0000000000000000000000000000000000000000 buildDate=2026-01-01T00:00:00Z; do
      printf ' -X %s.%s' $name "$pair"
    done
  done
}

module_of() { # the folder with the go.mod of a program, which some share: containerd-shim, keda-adapter
  if [ -d "$here/$1" ]; then echo "$1"; else echo "${1%-*}"; fi
}

run_go() {
  (cd "$here/$(module_of "$1")" && CGO_ENABLED=0 GOTOOLCHAIN=local GOWORK=off \
    GOFLAGS="-p=2 -buildvcs=false -mod=readonly" nice "$go" "${@:2}")
}

[ $# -ge 1 ] || usage
go=$("$here/../parts/find-go.sh")
if [ "$1" = --source ]; then
  path=${3:-${package[$2]%/cmd*}}
  run_go "$2" mod download "$path" >&2
  run_go "$2" list -m -f '{{.Dir}}' "$path"
  exit
fi
built=
[ "$1" != --built ] || { built=yes; shift; }
name=${1:-}
[ -n "${package[$name]:-}" ] || usage
out=$PM_CACHE/extras/$name-$(cat "$here/$(module_of "$name")"/* | sha256sum | cut -c 1-12)
if [ -n "$built" ]; then [ -x "$out" ] || exit 3; echo "$out"; exit; fi
mkdir -p "$PM_CACHE/extras"
exec 9> "$out.lock"
flock 9
if [ ! -x "$out" ]; then
  begin=$SECONDS
  run_go "$name" build -trimpath -ldflags "-s -w$(flags_of "$name")" -o "$out.new" "${package[$name]}" \
    > "$out.log" 2>&1 ||
    { tail -n 30 "$out.log" >&2; echo "$name was not built; all of it in $out.log" >&2; exit 1; }
  mv "$out.new" "$out"
  echo "$name: built in $((SECONDS - begin)) s" >&2
fi
echo "$out"
