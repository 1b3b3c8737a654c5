#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compiles through ccache: compile.sh CCACHE COMPILER ARGUMENT... A precompiled header has several 100 MB, which ccache
# would read for every file that uses it. It takes the checksum beside the header instead, which is written here.
CCACHE_PCH_EXTSUM=1 "$@" || exit
for output; do
  case $output in *.gch) sha256sum < "$output" > "$output.sum" ;; esac
done
