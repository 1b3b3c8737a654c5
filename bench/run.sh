#!/bin/bash
# Every number of the README: runs each script of this folder in turn.
set -euo pipefail
cd "$(dirname "$0")"
for script in *.sh; do
  [ "$script" = run.sh ] && continue
  echo "== bench/$script"
  (cd .. && "bench/$script" "${PM_BUILD:-build/release}")
done
