# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/gpu, which runs and reports measurements on a machine with a GPU. No test here needs one."""

import pathlib
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
sys.path += [str(REPOSITORY / folder) for folder in ("tools/gpu", "tests/parity", "bench/gpu")]
