// SPDX-License-Identifier: Apache-2.0
// Begins the checksum that names a file of the hub.
#pragma once
#include "base/digest.h"
#include "worker/hub/listing.h"

namespace pm::hub {

/// Returns a digest that takes the file's bytes: SHA-256 for a file in large file storage, else git's SHA-1, which has
/// already taken "blob SIZE\0".
base::Digest file_digest(const File&);

}  // namespace pm::hub
