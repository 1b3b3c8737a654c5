// The names of bytes: SHA-256, and SHA-1 of a git blob.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "worker/hub/listing.h"

struct evp_md_ctx_st;

namespace pm::hub {

/// What a file's bytes must be called, computed as they come.
class Digest {
 public:
  /// SHA-256 for a file in large file storage, else git's SHA-1 over "blob SIZE\0" and the bytes.
  explicit Digest(const File&);
  void update(std::string_view);
  /// Hexadecimal; ends the computation.
  std::string finish();

 private:
  struct Free { void operator()(evp_md_ctx_st*) const; };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace pm::hub
