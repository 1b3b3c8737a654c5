#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Collects the plugin of kubectl, in a stage of the Dockerfile: plugin.sh PROGRAM OUT
# The program is static, so the packages whose archives are part of it are recorded by the names of the archives.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/parts.sh"
program=${1:?usage: tools/image/plugin.sh PROGRAM OUT} out=${2:?usage: tools/image/plugin.sh PROGRAM OUT}

program_part "$out" "$program"
notices_part "$out"
for archive in libc.a libstdc++.a libgcc.a libcrypto.a; do
  debian_package "$out" "$(gcc -print-file-name=$archive)"
done
for package in nlohmann-json3-dev libcli11-dev; do package_record "$out" "$package"; done
