// SPDX-License-Identifier: Apache-2.0
// Compiles a function once for each vector width of the CPUs; the loader chooses one at start (ifunc). Sanitizers
// cannot run such resolvers; clang, which compiles the fuzz targets, does not define that it has one.
#pragma once

#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define PM_WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PM_WIDEST
#endif
