#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# All tests, stage by stage, each timed; the first failure ends the run. Stages build what they need. The CPU time
# of the machine beside the clock's tells a stage that computes from one that waits.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
log=$(mktemp)
busy_seconds() { awk '/^cpu / { printf "%d", ($2 + $3 + $4) / 100 }' /proc/stat; } # of the whole machine
stage() { # name command...
  local begin=$SECONDS busy name=$1; shift
  busy=$(busy_seconds)
  echo "=== $name"
  if ! "$@"; then echo "=== $name FAILED after $((SECONDS - begin)) s"; cat "$log"; exit 1; fi
  printf '%-12s %5d s, %5d s CPU\n' "$name" $((SECONDS - begin)) $(($(busy_seconds) - busy)) >> "$log"
}
# the cluster's Go build is the longest and needs nothing of ours: it runs beside the rest at low priority
nice make -s cluster > "${PM_CACHE:=$HOME/.cache/parallelmodel}/cluster-build.log" 2>&1 & cluster=$!
cluster_built() { wait $cluster || { tail -30 "$PM_CACHE/cluster-build.log"; return 1; }; }
stage deps make -s test-deps
stage lint make -s lint
stage build make -s build-tests
stage unit make -s unit
stage cuda make -s cuda
stage fuzz tests/fuzz/run.sh
stage parity make -s parity
stage hub make -s hub
stage stress make -s stress
stage cluster cluster_built
stage reliability make -s reliability
stage e2e make -s e2e
echo "=== stages"; cat "$log"
