#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the tokenizers crate: tokenizers.sh CARGO CRATE TARGET LIBRARY. Cargo would compile the crate again in each
# clone, because it goes by paths and times. A library of the same sources is taken from TARGET instead, which holds the
# last four.
set -eu
cargo=$1 crate=$2 target=$3 library=$4
cd "$crate"
sources() { find src Cargo.toml Cargo.lock -type f | LC_ALL=C sort | xargs sha256sum; "$cargo" --version; }
name=$(sources | sha256sum | cut -c1-16)
built=$target/libraries/$name.a
if [ ! -e "$built" ]; then
  CARGO_TARGET_DIR=$target "$cargo" build --release --locked --quiet
  mkdir -p "$target/libraries"
  cp "$target/release/libtextops.a" "$built.$$"
  mv "$built.$$" "$built"
fi
touch "$built"
ls -t "$target"/libraries/*.a | tail -n +5 | xargs -r rm -f
cp "$built" "$library"
