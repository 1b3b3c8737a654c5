# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Where the built programs lie: outside of any clone, under a hash of everything they are built from.
export PM_CACHE=${PM_CACHE:-$HOME/.cache/parallelmodel}
# What Go has compiled, 18 GB with all extras: ours, so that `make test` may delete it once the programs stand.
export GOCACHE=$PM_CACHE/go-build
here=${here:?the folder of this file\'s parent}

# Prints the folder of the programs that this version of the sources builds.
cluster_cache() {
  local hash
  hash=$(cd "$here" && cat build.sh pause.c {testcluster,coredns,helm}/go.{mod,sum} {testcluster,coredns}/*.go |
    sha256sum | cut -c 1-12)
  echo "$PM_CACHE/cluster-$hash"
}
