// SPDX-License-Identifier: Apache-2.0
// Images among the tokens of a prompt: their files, their tokens, and the rows that a forward pass makes of them.
#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "worker/engine/prompt_image.h"
#include "worker/server/images/image_reference.h"
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Keeps the rows of images that were seen last, so that later turns of a conversation run no tower again, and share
/// the KV blocks of earlier ones. Thread-safe.
class ImageRowCache {
 public:
  struct Rows {
    int32_t key = -1;  ///< of an image that is not kept: one that no other image has had
    std::shared_ptr<const std::vector<float>> values;
  };
  /// Bytes of rows that are kept at most.
  explicit ImageRowCache(size_t max_bytes = size_t{128} << 20) : max_bytes_(max_bytes) {}

  /// How many images were looked up, and how many of them were found.
  struct Counts {
    int64_t queries = 0, hits = 0;
  };
  Counts counts() const;
  /// Returns the rows of the file with this digest; without values where it is not kept.
  Rows find(const std::string& digest);
  /// Keeps rows and returns them with their key, or those that another request has kept in the meantime.
  Rows keep(const std::string& digest, std::vector<float> values);

 private:
  struct Entry {
    std::string digest;
    Rows rows;
  };
  const size_t max_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  ///< the one that was used last stands first
  std::map<std::string, std::list<Entry>::iterator> by_digest_;
  size_t bytes_ = 0;
  int32_t last_key_ = -1;
  Counts counts_;
};

/// The file of an image, and the tokens that stand for it.
struct PromptImageFile {
  std::string bytes, field;  ///< field of the request, for messages
  int64_t tokens = 0;
  int64_t down = 0, across = 0;  ///< rows and columns of the tokens of an image of any size
};

/// Reads the files of images, and of images of any size their sides. Throws ApiError: 400 for what is no image, or for
/// more tokens than the context window has, 413 for one that is too large.
std::vector<PromptImageFile> read_prompt_images(const ServerContext&, const std::vector<ImageReference>&);

/// Spells the images of a prompt as their tokens, in the place of what chat templates write for them. Throws ApiError
/// 400 unless the prompt has a place for each image.
std::string spell_images(const ServerContext&, const std::vector<PromptImageFile>&, std::string_view prompt);

/// Where an image stands among the tokens of a prompt: in one run, or row by row.
struct PlacedImage {
  std::vector<engine::PromptImage> parts;
};

/// Returns the places of images among the ids of a prompt, still without rows. Throws ApiError 400 where the prompt has
/// other tokens of images beside theirs.
std::vector<PlacedImage> find_images(const ServerContext&, const std::vector<PromptImageFile>&,
                                     const std::vector<int32_t>& ids);

/// Fills in the rows of images. Those that are not kept are computed by forward passes. Throws ApiError: 400 for what
/// is no image, 413 for one that is too large, and what a forward pass throws.
void fill_image_rows(const ServerContext&, const RoutedRequest&, const std::vector<PromptImageFile>&,
                     std::vector<PlacedImage>&);

}  // namespace pm::server
