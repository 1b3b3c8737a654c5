// See hub.h.
#include "worker/cli/hub.h"

namespace pm::cli {

void HubOptions::add_to(CLI::App& verb) {
  verb.add_option("--revision", revision, "Branch, tag or commit of a model on the hub; absent: main");
  verb.add_option("--token-file", token_file, "File that holds the hub's token, for private and gated models. HF_ENDPOINT names another hub than the public one");
}

hub::Access HubOptions::access() const { return {hub::endpoint_of(hub::real_environment), hub::read_token(token_file)}; }

}  // namespace pm::cli
