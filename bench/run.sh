#!/bin/bash
# Every number of the README: runs each script of this folder in turn.
set -euo pipefail
cd "$(dirname "$0")"
for script in *.sh; do
  case $script in run.sh|common.sh|peers.sh) continue ;; esac
  echo "== bench/$script"
  (cd .. && "bench/$script" "${PM_BUILD:-build/release}")
done
