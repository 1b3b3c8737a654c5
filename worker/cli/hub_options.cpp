// SPDX-License-Identifier: Apache-2.0
#include "worker/cli/hub_options.h"

#include "contract/worker_arguments.h"

namespace pm::cli {

void HubOptions::add_to(CLI::App& subcommand) {
  subcommand.add_option(flag::revision.name, revision, "Branch, tag or commit of a model on the hub (default: main)");
  subcommand.add_option(
      flag::token_file.name, token_file,
      "File with the hub's access token, for private and gated models. The environment variable HF_ENDPOINT "
      "selects another hub than the public one");
}

hub::Access HubOptions::access() const {
  return {hub::endpoint_of(hub::real_environment), hub::read_token(token_file)};
}

}  // namespace pm::cli
