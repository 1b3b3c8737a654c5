#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Puts cpp-httplib's one-file header, with Debian 13's security patches applied, into $PM_CACHE/httplib.
# Needed only where the distribution's own package is older than 0.18.7 (Debian 12). The source package is fetched with
# private sources lists, states and caches: nothing of the machine's apt configuration changes; signatures are checked.
set -euo pipefail
cache=${PM_CACHE:-$HOME/.cache/parallelmodel}
out=$cache/httplib
[ ! -e "$out/httplib.h" ] || exit 0
version=0.18.7
if header=$(dpkg-query -L libcpp-httplib-dev 2> /dev/null | grep '/httplib\.h$') &&
   dpkg --compare-versions "$(dpkg-query -W -f '${Version}' libcpp-httplib-dev)" ge $version; then
  echo "cpp-httplib: the distribution's $header"; exit 0
fi
command -v dpkg-source > /dev/null || apt-get install -y -qq --no-install-recommends dpkg-dev
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,cache/archives/partial,source}
# the mirror that this machine already uses for Debian itself, asked for the next release
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' \
  2> /dev/null | head -1 || true)
[ -n "$mirror" ] \
  || {
    echo "cpp-httplib: no Debian mirror in /etc/apt; install libcpp-httplib-dev >= $version" \
      "or put httplib.h into $out" >&2
    exit 1
  }
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb-src [signed-by=$keyring] $mirror trixie main" > "$work/sources.list"
apt="apt-get -qq -o Dir::Etc::sourcelist=$work/sources.list -o Dir::Etc::sourceparts=/dev/null \
  -o Dir::State::lists=$work/lists
  -o Dir::Cache=$work/cache -o APT::Sandbox::User=root"
$apt update
(cd "$work/source" && $apt source --download-only cpp-httplib && dpkg-source --no-check -x ./*.dsc tree > /dev/null)
grep -q "CPPHTTPLIB_VERSION \"0\.\(1[89]\|[2-9]\)" "$work/source/tree/httplib.h"
mkdir -p "$out" && cp "$work/source/tree/httplib.h" "$out/httplib.h"
echo "cpp-httplib: $(grep -o 'CPPHTTPLIB_VERSION ".*"' "$out/httplib.h")"
