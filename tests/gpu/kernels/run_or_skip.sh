#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run_or_skip.sh PROGRAM: runs the program. On a machine without a GPU and without the CUDA libraries that torch's
# libraries need, it exits with 77, which CTest reports as skipped.
if ! ls /dev/nvidia[0-9]* > /dev/null 2>&1 && ldd "$1" | grep 'not found'; then exit 77; fi
exec "$1"
