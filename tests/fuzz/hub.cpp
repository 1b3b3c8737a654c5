// SPDX-License-Identifier: Apache-2.0
// What a hub answers: a listing, then after the first NUL an index, then a Location. Files of an accepted listing lead
// to places inside of the cache alone, an index to files of the listing, a Location never from TLS to none.
#include <filesystem>

#include "tests/fuzz/input.h"
#include "worker/hub/address.h"
#include "worker/hub/cache.h"
#include "worker/hub/listing.h"

namespace {

using namespace pm;
using fuzz::hold;

/// Up to the next NUL, which goes.
std::string part(std::string& rest) {
  const size_t end = std::min(rest.find('\0'), rest.size());
  std::string out = rest.substr(0, end);
  rest.erase(0, std::min(end + 1, rest.size()));
  return out;
}

bool inside(const std::filesystem::path& path, const std::filesystem::path& root) {
  const std::filesystem::path normal = path.lexically_normal();
  return std::mismatch(root.begin(), root.end(), normal.begin(), normal.end()).first == root.end();
}

void hold_listing(const hub::Listing& listing, const std::string& index) {
  const hub::Cache cache("/cache", "org/name");
  hold(hub::is_commit(listing.commit), "a commit that is none");
  for (const hub::File& file : listing.files) {
    hold(file.size >= 0 && listing.find(file.path) == &file, "a file twice, or without size");
    const std::filesystem::path snapshot = cache.snapshot(listing.commit);
    hold(inside(snapshot / file.path, snapshot) && (snapshot / file.path).lexically_normal() != snapshot,
         "\"" + file.path + "\" leads out of the snapshot");
    for (const auto& path : {cache.blob(file), cache.part(file)})
      hold(inside(path, "/cache/models--org--name/blobs") && path.filename().native().size() >= 40, "a blob elsewhere");
  }
  for (const hub::File& file : hub::small_files(listing))
    hold(file.size <= int64_t{128} << 20 && listing.find(file.path), "a small file that is not small");
  const hub::WeightFiles weights = hub::weight_files(listing, "org/name");
  hold(weights.index.has_value() == weights.files.empty(), "weights in two forms, or in none");
  if (!weights.index) return;
  for (const hub::File& file : hub::indexed_files(listing, *weights.index, index)) {
    const hub::File* known = listing.find(file.path);
    hold(known && *known == file, "an index adds a file");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string rest = fuzz::text(data, size);
  const std::string listing = part(rest), index = part(rest), location = part(rest);
  for (const char* from : {"https://hub.example.com/api/models/a", "http://[::1]:8080/x"}) {
    const hub::Url here = *hub::parse_url(from);
    const auto there = hub::redirect_from(here, location);
    if (!there) continue;
    hold(there->tls || !here.tls, "a redirect gives up TLS");
    hold(!there->host.empty() && there->port > 0 && there->port < 65536 && there->target.starts_with('/'),
         "a place that is none");
    hold(there->text().find_first_of(std::string_view("\r\n\0 ", 4)) == std::string::npos,
         "a place that would break a request");
    const auto again = hub::parse_url(there->text());
    hold(again && again->origin() == there->origin() && again->target == there->target,
         "\"" + there->text() + "\" reads otherwise");
  }
  try {
    hold_listing(hub::listing_of(listing, "https://hub.example.com"), index);
  } catch (const Error&) {
  }
  return 0;
}
