#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Starts the program of the kit that has this file's name (libexec) with the libraries of the kit and of the torch that
# PM_PYTHON finds. Nothing of torch is run for that. PM_KERNELS names a folder with another libpm_kernels.so.
kit=$(cd "$(dirname "$0")/.." && pwd) || exit
torch=$("${PM_PYTHON:-python3}" -c '
import glob, importlib.util, os
found = importlib.util.find_spec("torch")
if not found:
    raise SystemExit("launch.sh: this Python has no torch; name one that has it in PM_PYTHON")
root = os.path.dirname(found.origin)
print(":".join([root + "/lib", *sorted(glob.glob(os.path.dirname(root) + "/nvidia/*/lib"))]))') || exit
LD_LIBRARY_PATH=${PM_KERNELS:+$PM_KERNELS:}$kit/lib:$torch${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec "$kit/libexec/$(basename "$0")" "$@"
