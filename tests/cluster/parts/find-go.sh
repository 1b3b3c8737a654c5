#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Prints the path of a Go that is new enough to build the test cluster; explains itself on the error output.
# In order: $GO, the machine's, the one fetched before, and the toolchain module fetched with any older Go.
set -eu
need=1.26.0 fetch=1.26.8
PM_CACHE=${PM_CACHE:-$HOME/.cache/parallelmodel}
say() { echo "find-go: $*" >&2; }

version() { GOTOOLCHAIN=local "$1" version 2> /dev/null | sed -n 's/^go version go\([0-9.]*\).*/\1/p'; }
new_enough() { local found; found=$(version "$1"); [ -n "$found" ] && printf '%s\n' $need "$found" | sort -VC; }

old=""
for go in ${GO:-} "$(command -v go || true)" /usr/local/go/bin/go /usr/lib/go-*/bin/go "$PM_CACHE/go$fetch/bin/go"; do
  [ -x "$go" ] || continue
  if new_enough "$go"; then echo "$go"; exit 0; fi
  [ -z "$(version "$go")" ] || old=$go
done

if [ -z "$old" ]; then
  if [ "$(id -u)" != 0 ] || [ ! -x "$(command -v apt-get)" ]; then
    say "no Go on this machine: install Go >= $need from https://go.dev/dl, or Debian's golang-go, then run this again"
    exit 1
  fi
  say "no Go on this machine: installing Debian's golang-go"
  apt-get install -y --no-install-recommends golang-go > /dev/null || {
    say "apt-get install golang-go failed: install Go >= $need from https://go.dev/dl"; exit 1; }
  old=$(command -v go)
  if new_enough "$old"; then echo "$old"; exit 0; fi
fi

case $(uname -m) in x86_64) machine=amd64 ;; aarch64) machine=arm64 ;; *) machine=$(uname -m) ;; esac
module=golang.org/toolchain@v0.0.1-go$fetch.linux-$machine
say "Go $(version "$old") at $old is older than $need: fetching Go $fetch as module $module"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
answer=$(GOTOOLCHAIN=local GO111MODULE=on GOFLAGS=-mod=mod "$old" mod download -json "$module") || {
  say "$answer"
  say "the module proxy did not give it: install Go >= $need from https://go.dev/dl, or set GO to its path"; exit 1; }
source=$(sed -n 's/^.*"Dir": "\(.*\)".*$/\1/p' <<< "$answer")
mkdir -p "$PM_CACHE"
cp -r "$source" "$PM_CACHE/go$fetch.new.$$"
chmod -R u+w "$PM_CACHE/go$fetch.new.$$"          # modules are unpacked read-only and without execute bits
chmod +x "$PM_CACHE/go$fetch.new.$$"/bin/* "$PM_CACHE/go$fetch.new.$$"/pkg/tool/*/*
mv -T "$PM_CACHE/go$fetch.new.$$" "$PM_CACHE/go$fetch" 2> /dev/null || rm -rf "$PM_CACHE/go$fetch.new.$$"
echo "$PM_CACHE/go$fetch/bin/go"
