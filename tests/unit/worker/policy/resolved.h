// SPDX-License-Identifier: Apache-2.0
// Resolves tiny checkpoints, with built-in policies or given ones.
#pragma once
#include <gtest/gtest.h>

#include "tests/unit/worker/policy/synthetic.h"
#include "worker/base/error.h"
#include "worker/policy/resolve.h"

namespace pm::policy {

/// A model together with the checkpoint that its tensors belong to.
struct Resolved {
  checkpoint::Folder folder;
  std::optional<checkpoint::Checkpoint> checkpoint;
  Model model;
  explicit Resolved(const Synthetic& synthetic, const std::string& policy = "") {
    synthetic.write(folder);
    if (!policy.empty()) folder.write("policy.yaml", policy);
    checkpoint.emplace(checkpoint::Checkpoint::open(folder.path));
    model = resolve(*checkpoint, policy.empty() ? std::filesystem::path() : folder.path / "policy.yaml");
  }
  const Param& param(const std::string& path) const {
    for (const Param* param : model.params())
      if (param->path == path) return *param;
    throw std::runtime_error("no " + path);
  }
};

/// Why it does not resolve; "resolved" when it does.
inline std::string refusal(const Synthetic& synthetic, Reason reason, const std::string& policy = "") {
  try {
    const Resolved resolved(synthetic, policy);
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, reason) << error.what();
    return error.what();
  }
  return "resolved";
}

}  // namespace pm::policy
