// SPDX-License-Identifier: Apache-2.0
#include "worker/hub/file_digest.h"

#include <string>

namespace pm::hub {

base::Digest file_digest(const File& file) {
  if (!file.sha256.empty()) return base::Digest(base::DigestAlgorithm::Sha256);
  base::Digest digest(base::DigestAlgorithm::Sha1);
  const std::string head = "blob " + std::to_string(file.size);
  digest.update({head.c_str(), head.size() + 1});
  return digest;
}

}  // namespace pm::hub
