#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs the engines of the comparison (bench/requirements.txt) in a virtual environment below PM_CACHE, once per set
# of versions. llama.cpp is compiled for this machine, which takes minutes. Prints the environment's Python.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${PM_CACHE:-$HOME/.cache/parallelmodel}
peers=$cache/peers tests=$cache/venv
stamp=$cache/stamp-peers-$(cat bench/requirements.txt | sha256sum | cut -c1-12)
[ -x "$tests/bin/python" ] \
  || { echo "peers: run \`make test-deps\` first: the engines share its torch and transformers" >&2; exit 1; }
if [ ! -e "$stamp" ] || [ ! -x "$peers/bin/python" ]; then
  [ -x "$peers/bin/python" ] || "$tests/bin/python" -m venv "$peers"
  site=$("$peers/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  # searched after its own
  "$tests/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$site/tests.pth"
  echo "peers: installing, see $cache/peers.log" >&2
  "$peers/bin/python" -m pip install --disable-pip-version-check --no-deps -r bench/requirements.txt \
    > "$cache/peers.log" 2>&1 || { tail -20 "$cache/peers.log" >&2; exit 1; }
  "$peers/bin/python" -c 'import ctranslate2, fastapi, gguf, llama_cpp.server.app, torch, transformers, uvicorn' \
    2>> "$cache/peers.log" \
    || { tail -20 "$cache/peers.log" >&2; exit 1; }
  touch "$stamp"
fi
echo "$peers/bin/python"
