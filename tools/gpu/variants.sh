#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# variants.sh KIT: runs the kernel benchmark with the kit's own kernels and with each of KIT/variants, in turn. The name
# of the variant stands before the name of each figure.
set -uo pipefail
kit=${1:?usage: tools/gpu/variants.sh KIT}
failed=0
for folder in "$kit/lib" "$kit"/variants/*/; do
  [ -e "$folder/libpm_kernels.so" ] || continue
  PM_KERNELS=$folder "$kit/bin/bench_gpu_kernels" | sed "s/^{\"figure\": \"/&$(basename "$folder"): /" || failed=1
done
exit $failed
