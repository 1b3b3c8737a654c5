// SPDX-License-Identifier: Apache-2.0
// Downloads one file from the hub into the cache.
#pragma once
#include <string>

#include "worker/hub/cache.h"
#include "worker/hub/client.h"

namespace pm::hub {

class Progress;

/// Resumes the partial file part(), verifies the complete file, syncs it and moves it to blob(). A file with a wrong
/// checksum is deleted and downloaded once more; the second time throws Error{ChecksumMismatch}. Other errors
/// are those of fetch().
void download(Client&, const Cache&, const std::string& id, const std::string& commit, const File&, Progress&);

}  // namespace pm::hub
