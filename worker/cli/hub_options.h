// SPDX-License-Identifier: Apache-2.0
// The options that the subcommands which access the Hugging Face hub share.
#pragma once
#include <CLI/CLI.hpp>

#include <string>

#include "worker/hub/client.h"

namespace pm::cli {

/// The options --revision and --token-file. The environment variable HF_ENDPOINT selects the hub.
struct HubOptions {
  std::string revision, token_file;
  void add_to(CLI::App& subcommand);
  /// Throws Error{Usage} for an invalid endpoint and Error{AuthFailed} for an unusable token file.
  hub::Access access() const;
};

struct Program;
void add_fetch(CLI::App&, Program&);

}  // namespace pm::cli
