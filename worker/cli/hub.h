// What the verbs that ask the hub share.
#pragma once
#include <CLI/CLI.hpp>

#include <string>

#include "worker/hub/client.h"

namespace pm::cli {

/// --revision --token-file; the hub itself is HF_ENDPOINT's.
struct HubOptions {
  std::string revision, token_file;
  void add_to(CLI::App& verb);
  /// Throws Error{Usage} for an endpoint, Error{Model, "AuthFailed"} for a token file of no use.
  hub::Access access() const;
};

struct Program;
void add_fetch(CLI::App&, Program&);

}  // namespace pm::cli
