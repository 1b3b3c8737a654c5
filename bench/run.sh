#!/bin/bash
# Every number of the README: runs each script of this folder in turn.
set -euo pipefail
cd "$(dirname "$0")"
for script in *.sh; do
  case $script in run.sh|common.sh|peers.sh|gpu.sh) continue ;; esac   # gpu.sh is for machines with one, and preset cuda
  echo "== bench/$script"
  (cd .. && "bench/$script" "${PM_BUILD:-build/release}")
done
