// SPDX-License-Identifier: Apache-2.0
// Computes SHA-256 digests, and SHA-1 where a format such as git's prescribes it.
#pragma once
#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace pm::base {

enum class DigestAlgorithm { Sha1, Sha256 };

/// Computes a digest of bytes that arrive in pieces.
class Digest {
 public:
  explicit Digest(DigestAlgorithm);
  void update(std::string_view bytes);
  /// Returns the bytes of the digest, 20 or 32, and ends the computation.
  std::string finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st*) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

/// Returns the SHA-256 digest of the bytes, 32 bytes. It is the same in every build and run.
std::string sha256(std::string_view bytes);
/// Returns two lower-case hexadecimal digits for each byte.
std::string to_hex(std::string_view bytes);

}  // namespace pm::base
