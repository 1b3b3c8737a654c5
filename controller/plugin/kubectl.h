// SPDX-License-Identifier: Apache-2.0
// Runs kubectl, through which the plugin reaches the cluster: every way of signing in that kubectl knows, exec plugins
// of clouds included, works for the plugin too.
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

#include "controller/core/json.h"

namespace pm::plugin {

/// kubectl failed and has said why on the standard error. `code` is its exit status.
struct KubectlFailed : std::runtime_error {
  KubectlFailed(const std::string& message, int code) : std::runtime_error(message), code(code) {}
  int code;
};

class Kubectl {
 public:
  using Arguments = std::vector<std::string>;
  /// `global` are flags for each call: --context, --kubeconfig, --namespace.
  explicit Kubectl(Arguments global) : global_(std::move(global)) {}
  /// Returns the standard output. Throws KubectlFailed. With `quiet` the standard error is dropped.
  std::string output(const Arguments&, bool quiet = false) const;
  /// Returns the output of `... -o json`, parsed.
  k8s::Json json(Arguments) const;
  /// Becomes kubectl; returns only by KubectlFailed.
  [[noreturn]] void become(const Arguments&) const;

 private:
  std::vector<std::string> words_of(const Arguments&) const;
  const Arguments global_;
};

}  // namespace pm::plugin
