// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/shared_memory/shm_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "worker/base/error.h"

namespace pm::comm {
namespace {

struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
};

[[noreturn]] void fail(Reason reason, const std::string& what, int error) {
  throw Error(reason, what + ": " + std::strerror(error));
}

}  // namespace

std::string ShmFile::path(const std::string& name) {
  if (name.empty() || name.size() > 200 || name.find('/') != std::string::npos || name[0] == '.')
    throw std::invalid_argument("segment name '" + name +
                                "': expected 1 to 200 characters without '/' and no leading '.'");
  return "/dev/shm/" + name;
}

ShmFile::ShmFile(int descriptor, size_t size, const std::string& path) : size_(size) {
  memory_ = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory_ == MAP_FAILED)
    fail(Reason::DoesNotFit, "cannot map " + std::to_string(size) + " bytes of " + path, errno);
}

ShmFile::ShmFile(ShmFile&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)), size_(other.size_) {}

ShmFile::~ShmFile() {
  if (memory_ != nullptr) munmap(memory_, size_);
}

ShmFile ShmFile::create(const std::string& name, size_t bytes) {
  const std::string file = path(name);
  remove(name);
  const Descriptor fd{::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)};
  if (fd.value < 0) fail(Reason::RankLost, "cannot create " + file, errno);
  if (const int error = posix_fallocate(fd.value, 0, static_cast<off_t>(bytes)); error != 0) {
    unlink(file.c_str());
    fail(Reason::DoesNotFit,
         "/dev/shm has no space for the " + std::to_string(bytes) +
             " bytes that ranks communicate through; enlarge it (shmSize)",
         error);
  }
  try {
    return ShmFile(fd.value, bytes, file);
  } catch (...) {
    unlink(file.c_str());
    throw;
  }
}

ShmFile ShmFile::open(const std::string& name) {
  const std::string file = path(name);
  const Descriptor fd{::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW)};
  if (fd.value < 0)
    fail(Reason::RankLost, "cannot open " + file + " (the launcher makes it and removes it when the group ends)",
         errno);
  struct stat info{};
  if (fstat(fd.value, &info) != 0 || info.st_size == 0) fail(Reason::RankLost, file + " is empty", errno);
  return ShmFile(fd.value, static_cast<size_t>(info.st_size), file);
}

bool ShmFile::remove(const std::string& name) { return unlink(path(name).c_str()) == 0; }

}  // namespace pm::comm
