#!/bin/bash
# Builds the multi-call binary: build.sh OUT
set -eu
cd "$(dirname "$0")"
version=v1.36.3
flags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  for pair in gitVersion=$version gitMajor=1 gitMinor=36 gitTreeState=clean gitCommit=0000000000000000000000000000000000000000 buildDate=2026-01-01T00:00:00Z; do
    flags="$flags -X $package.$pair"
  done
done
CGO_ENABLED=0 go build -trimpath -ldflags "$flags" -o "$1" .
