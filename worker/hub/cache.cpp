// SPDX-License-Identifier: Apache-2.0
#include "worker/hub/cache.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/byte_size.h"
#include "worker/base/error.h"

namespace pm::hub {

namespace fs = std::filesystem;

namespace {

int64_t size_of(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? -1 : static_cast<int64_t>(size);
}

void make(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) refuse_write(folder, error.value());
}

}  // namespace

void refuse_write(const fs::path& path, int error) {
  if (error == ENOSPC || error == EDQUOT) {
    throw Error(Reason::InsufficientStorage,
                path.string() + " cannot be written: " + std::strerror(error) + ", " +
                    base::format_bytes(std::max<int64_t>(0, free_bytes(path.parent_path()))) +
                    " free; give the volume more room (spec.model.cache.size)");
  }
  throw Error(Reason::VolumeNotWritable, path.string() + " cannot be written: " + std::strerror(error) +
                                             "; the volume must be writable by user " + std::to_string(::geteuid()) +
                                             " or group " + std::to_string(::getegid()));
}

int64_t free_bytes(const fs::path& folder) {
  struct statvfs status{};
  if (::statvfs(folder.c_str(), &status) != 0) return -1;
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

std::string Cache::folder_name(const std::string& id) {
  std::string out = "models--";
  for (const char c : id) out += c == '/' ? "--" : std::string(1, c);
  return out;
}

bool Cache::has(const File& file, const std::string& commit) const {
  return size_of(blob(file)) == file.size || size_of(snapshot(commit) / file.path) == file.size;
}

int64_t Cache::present(const File& file, const std::string& commit) const {
  return has(file, commit) ? file.size : std::clamp<int64_t>(size_of(part(file)), 0, file.size);
}

void Cache::prepare(const std::string& commit) const {
  make(folder_ / "blobs");
  make(snapshot(commit));
}

void Cache::link(const File& file, const std::string& commit) const {
  const fs::path place = snapshot(commit) / file.path;
  if (size_of(place) == file.size) return;
  make(place.parent_path());
  fs::path target;
  for (auto depth = std::count(file.path.begin(), file.path.end(), '/') + 2; depth > 0; --depth) target /= "..";
  target = target / "blobs" / file.name();
  const fs::path fresh = place.string() + ".new";
  ::unlink(fresh.c_str());
  if (::symlink(target.c_str(), fresh.c_str()) == 0) {
    if (::rename(fresh.c_str(), place.c_str()) != 0) refuse_write(place, errno);
    return;
  }
  const bool without_links = errno == EPERM || errno == ENOTSUP || errno == ENOSYS || errno == EINVAL ||
                             errno == EACCES;  // some CIFS and FUSE volumes
  if (!without_links) refuse_write(place, errno);
  if (::rename(blob(file).c_str(), place.c_str()) != 0) refuse_write(place, errno);
}

void Cache::note(const std::string& revision, const std::string& commit) const {
  if (revision == commit) return;
  const fs::path place = folder_ / "refs" / revision, fresh = place.string() + ".new";
  make(place.parent_path());
  std::ofstream out(fresh, std::ios::trunc);
  out << commit;
  out.close();
  if (!out || ::rename(fresh.c_str(), place.c_str()) != 0) refuse_write(place, errno);
}

}  // namespace pm::hub
