#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Says in one sentence each what of a machine ParallelModel is not tested on; docs/reference/machines.md has the list.
#   machine.sh [SYSTEM ARCHITECTURE CPU_FLAGS MEMORY_KIB FREE_KIB]     by default those of this machine
# Exit status 1: a build cannot succeed here.
set -euo pipefail
if [ $# = 0 ]; then
  set -- "$(uname -s)" "$(uname -m)" "$(sed -n 's/^flags[^:]*://p' /proc/cpuinfo 2> /dev/null | head -1)" \
    "$(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo 2> /dev/null)" \
    "$(df --output=avail . 2> /dev/null | tail -n 1)"
fi
[ $# = 5 ] || { sed -n 4,5p "$0" | cut -c 3- >&2; exit 2; }
system=$1 architecture=$2 flags=" $3 " memory=$4 free=$5
say() { echo "machine: $*" >&2; }

if [ "$system" != Linux ]; then
  say "this system is $system, and ParallelModel needs Linux: build it in a virtual machine or a container."
  exit 1
fi
if [ "$architecture" != x86_64 ]; then
  say "this machine is $architecture, and ParallelModel is tested on x86-64 only: generic kernels run, slowly."
else
  for flag in avx2 fma f16c; do
    [[ $flags == *" $flag "* ]] && continue
    say "this CPU lacks $flag (x86-64-v3): generic kernels run, several times slower."
    break
  done
fi
if [ "${memory:-0}" -lt $((4 << 20)) ]; then
  say "this machine has $((${memory:-0} >> 10)) MiB of memory, and a build of two files at once needs 4 GiB."
fi
if [ "${free:-0}" -lt $((4 << 20)) ]; then
  say "$((${free:-0} >> 10)) MiB are free here, and a build needs 4 GiB."
fi
