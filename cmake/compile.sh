#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compiles through ccache: compile.sh CCACHE COMPILER ARGUMENT... ccache would read a precompiled header, of several
# 100 MB, for every file that uses it, and find nothing after GCC has written it again, since two runs differ. It takes
# the checksum beside the header instead, which is written here: of what went into the header.
ccache=$1
shift
CCACHE_PCH_EXTSUM=1 "$ccache" "$@" || exit
header=
for argument; do
  case $argument in *.gch) header=$argument ;; esac
done
[ -n "$header" ] || exit 0
skip=
for argument; do
  shift
  if [ -n "$skip" ]; then skip=; continue; fi
  case $argument in
    -o | -MT | -MF) skip=yes ;;
    -c | -MD) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
mv "$header" "$header.aside"  # else it would be used in place of what it was made from
"$@" -E -P -dD > "$header.text" || exit
sha256sum < "$header.text" > "$header.sum"
mv "$header.aside" "$header"
rm "$header.text"
