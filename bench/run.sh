#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every number of the README: runs each script of this folder in turn, but for scale.sh, which takes half an hour.
set -euo pipefail
cd "$(dirname "$0")"
for script in *.sh; do
  # gpu.sh is for machines with one, and preset cuda; scale.sh for whole clusters of fake nodes
  case $script in run.sh|common.sh|peers.sh|gpu.sh|scale.sh) continue ;; esac
  echo "== bench/$script"
  (cd .. && "bench/$script" "${PM_BUILD:-build/release}")
done
