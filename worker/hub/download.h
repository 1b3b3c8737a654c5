// One file from the hub to its place in the cache.
#pragma once
#include <string>

#include "worker/hub/cache.h"
#include "worker/hub/client.h"

namespace pm::hub {

class Progress;

/// Goes on after what part() holds, verifies the whole, syncs it and moves it to blob(). Bytes whose checksum is wrong are dropped and fetched once more; wrong again:
/// Error{Model, "ChecksumMismatch"}. Other errors as of fetch().
void download(Client&, const Cache&, const std::string& id, const std::string& commit, const File&, Progress&);

}  // namespace pm::hub
