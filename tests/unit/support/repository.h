// SPDX-License-Identifier: Apache-2.0
// Where the repository lies, for tests that compare the code with pages and data of it.
#pragma once
#include <filesystem>

namespace pm::test {

/// Returns the root of the repository that the test was compiled from.
std::filesystem::path repository();

}  // namespace pm::test
