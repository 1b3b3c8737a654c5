// SPDX-License-Identifier: Apache-2.0
#include "worker/hub/download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <vector>

#include "base/byte_size.h"
#include "worker/base/error.h"
#include "worker/hub/fetch.h"
#include "worker/hub/file_digest.h"

#include "base/log.h"

namespace pm::hub {

namespace fs = std::filesystem;

namespace {

/// The partial file.
class Part {
 public:
  explicit Part(fs::path path) : path_(std::move(path)) { open(); }
  ~Part() { ::close(descriptor_); }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  int64_t size() const {
    struct stat status{};
    if (::fstat(descriptor_, &status) != 0) refuse_write(path_, errno);
    return status.st_size;
  }
  void empty() {
    struct stat held{}, named{};
    if (::fstat(descriptor_, &held) != 0 || ::stat(path_.c_str(), &named) != 0 ||
        held.st_ino != named.st_ino) {  // another download has renamed it
      ::close(descriptor_);
      open();
    }
    if (::ftruncate(descriptor_, 0) != 0) refuse_write(path_, errno);
  }
  void write(int64_t offset, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t done = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) refuse_write(path_, errno);
      offset += done;
      bytes.remove_prefix(static_cast<size_t>(done));
    }
  }
  /// Feeds the existing bytes to a digest. Returns false when the file has become shorter.
  bool digest(base::Digest& digest, int64_t size) const {
    std::vector<char> block(size_t{1} << 20);
    for (int64_t at = 0; at < size;) {
      const ssize_t got =
          ::pread(descriptor_, block.data(), std::min<size_t>(block.size(), static_cast<size_t>(size - at)), at);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      digest.update({block.data(), static_cast<size_t>(got)});
      at += got;
    }
    return true;
  }
  /// Syncs the file, makes it readable for workers, and moves it to its final name.
  void finish(const fs::path& name) {
    ::fchmod(descriptor_, 0664);
    if (::fsync(descriptor_) != 0) refuse_write(name, errno);
    std::error_code unknown;
    if (::rename(path_.c_str(), name.c_str()) != 0 && !(errno == ENOENT && fs::exists(name, unknown)))
      refuse_write(name, errno);  // another download was faster
    if (const int folder = ::open(name.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); folder >= 0) {
      ::fsync(folder);
      ::close(folder);
    }
  }

 private:
  void open() {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
    if (descriptor_ < 0) refuse_write(path_, errno);
  }

  const fs::path path_;
  int descriptor_ = -1;
};

}  // namespace

void download(Client& client, const Cache& cache, const std::string& id, const std::string& commit, const File& file,
              Progress& progress) {
  Part part(cache.part(file));
  if (part.size() > file.size) part.empty();
  for (bool again = false;; again = true) {
    int64_t size = part.size();
    base::Digest digest = file_digest(file);
    if (!part.digest(digest, size)) continue;
    if (size > 0)
      LOG(INFO) << file.path << ": " << base::format_bytes(size) << " of " << base::format_bytes(file.size)
                << " are there already";
    for (RetryPolicy retry = client.retry_policy(); size < file.size;) {
      const auto error = client.stream(id, commit, file, size, file.size - size, [&](std::string_view bytes) {
        part.write(size, bytes);
        digest.update(bytes);
        size += static_cast<int64_t>(bytes.size());
        progress.received(static_cast<int64_t>(bytes.size()));
        retry.progress();
        return true;
      });
      if (error) client.wait(retry, *error);
    }
    const std::string found = base::to_hex(digest.finish());
    if (found == file.name()) break;
    const std::string words = file.path + " of " + id + " at " + commit + ": " +
                              (file.sha256.empty() ? "the SHA-1 of its git blob" : "its SHA-256") + " is " + found +
                              ", the hub lists " + file.name();
    part.empty();
    progress.update([&](Progress::View& view) { view.fetched -= size; });
    if (again)
      throw Error(Reason::ChecksumMismatch,
                  words +
                      "; it was downloaded twice and is wrong both times: a proxy, a mirror or the hub itself serves "
                      "other bytes");
    LOG(WARNING) << "ChecksumMismatch: " << words << "; it is downloaded again";
    progress.update([&](Progress::View& view) {
      ++view.refetched, view.error = FetchError{Reason::ChecksumMismatch, words, true};
    });
  }
  part.finish(cache.blob(file));
  progress.update([](Progress::View& view) { ++view.files_done; });
  LOG(INFO) << file.path << ": " << base::format_bytes(file.size) << " fetched and verified";
}

}  // namespace pm::hub
