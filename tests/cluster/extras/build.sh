#!/bin/bash
# Builds a program that only some tests and measurements need, from its Go module, once per machine and version, and prints its path.
#   build.sh NAME        NAME is a folder here: kubescore, kubelinter (rules for manifests)
# Cold, on two cores that do nothing else: kubescore 1 min, kubelinter 2 to 3 min; modules are verified against go.sum.
set -eu
here=$(dirname "$(readlink -f "$0")")
PM_CACHE=${PM_CACHE:-$HOME/.cache/parallelmodel}
declare -A package=(
  [kubescore]=github.com/zegl/kube-score/cmd/kube-score
  [kubelinter]=golang.stackrox.io/kube-linter/cmd/kube-linter)

usage() { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }

run_go() { (cd "$here/$1" && CGO_ENABLED=0 GOTOOLCHAIN=local GOWORK=off GOFLAGS="-p=2 -buildvcs=false -mod=readonly" nice "$go" "${@:2}"); }

[ $# -ge 1 ] || usage
go=$("$here/../parts/find-go.sh")
name=$1
[ -n "${package[$name]:-}" ] || usage
out=$PM_CACHE/extras/$name-$(cat "$here/$name"/go.{mod,sum} | sha256sum | cut -c 1-12)
mkdir -p "$PM_CACHE/extras"
exec 9> "$out.lock"
flock 9
if [ ! -x "$out" ]; then
  begin=$SECONDS
  run_go "$name" build -trimpath -ldflags "-s -w" -o "$out.new" "${package[$name]}" > "$out.log" 2>&1 ||
    { tail -n 30 "$out.log" >&2; echo "$name was not built; all of it in $out.log" >&2; exit 1; }
  mv "$out.new" "$out"
  echo "$name: built in $((SECONDS - begin)) s" >&2
fi
echo "$out"
