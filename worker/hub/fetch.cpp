// SPDX-License-Identifier: Apache-2.0
#include "worker/hub/fetch.h"

#include <algorithm>
#include <exception>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "base/byte_size.h"
#include "contract/fetch_report.h"
#include "worker/base/error.h"
#include "worker/hub/download.h"

#include "base/log.h"

namespace pm::hub {

namespace {

int64_t bytes_of(const std::vector<File>& files) {
  int64_t sum = 0;
  for (const File& file : files) sum += file.size;
  return sum;
}

std::string read_whole(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

class Fetch {
 public:
  Fetch(const Repository& repository, const FetchOptions& options, Progress& progress, std::stop_token stop)
      : repository_(repository),
        options_(options),
        progress_(progress),
        stop_(std::move(stop)),
        cache_(options.cache, repository.id) {}

  Fetched run() {
    Client client = this->client(stop_);
    listing_ = client.list(repository_);
    small_ = small_files(listing_);
    WeightFiles weights = weight_files(listing_, repository_.id);
    if (weights.index) small_.push_back(*weights.index);
    progress_.update([&](auto& view) { view.commit = listing_.commit; });
    cache_.prepare(listing_.commit);

    std::unique_ptr<VolumeLock> lock;
    if (!complete(small_) || (weights.index && !complete(indexed(*weights.index))) || !complete(weights.files))
      lock = take_lock();
    bring(small_);
    large_ = weights.index ? indexed(*weights.index) : weights.files;
    check_room();
    bring(large_);
    for (const auto* files : {&small_, &large_})
      for (const File& file : *files) cache_.link(file, listing_.commit);
    cache_.note(repository_.revision, listing_.commit);
    progress_.update([](auto& view) { view.state = "Done", view.waits_for.clear(), view.error.reset(); });
    return {listing_.commit, cache_.snapshot(listing_.commit), bytes_of(small_) + bytes_of(large_),
            static_cast<int>(small_.size() + large_.size())};
  }

 private:
  Client client(std::stop_token stop) {
    return Client(options_.access, options_.stall_timeout, std::move(stop),
                  [this](const FetchError& error, std::chrono::milliseconds pause) {
                    LOG(WARNING) << error.reason << ": " << error.message << "; retrying in " << pause.count() << " ms";
                    progress_.update([&](auto& view) { ++view.retries, view.error = error; });
                  });
  }

  bool complete(const std::vector<File>& files) const {
    return std::all_of(files.begin(), files.end(), [&](const File& file) { return cache_.has(file, listing_.commit); });
  }

  /// Returns the files that an index on the volume names.
  std::vector<File> indexed(const File& index) const {
    const auto blob = cache_.blob(index), place = cache_.snapshot(listing_.commit) / index.path;
    return indexed_files(listing_, index, read_whole(std::filesystem::exists(blob) ? blob : place));
  }

  std::unique_ptr<VolumeLock> take_lock() {
    auto lock =
        std::make_unique<VolumeLock>(cache_.root() / ".parallelmodel-fetch", repository_.id + "@" + listing_.commit,
                                     options_.lock, stop_, [this](const std::string& holder) {
                                       progress_.update([&](auto& view) {
                                         if (view.waits_for != holder)
                                           LOG(INFO) << "waiting for the download of " << holder;
                                         view.state = waiting_state, view.waits_for = holder;
                                         count(view);
                                       });
                                     });
    progress_.update([](auto& view) { view.waits_for.clear(); });
    return lock;
  }

  /// Counts the bytes that are on the volume.
  void count(Progress::View& view) const {
    view.fetched = view.total = 0, view.files = view.files_done = 0;
    for (const auto* files : {&small_, &large_})
      for (const File& file : *files) {
        view.total += file.size, view.fetched += cache_.present(file, listing_.commit);
        ++view.files, view.files_done += cache_.has(file, listing_.commit);
      }
  }

  void check_room() const {
    int64_t needed = 0;
    for (const File& file : large_) needed += file.size - cache_.present(file, listing_.commit);
    const int64_t free = free_bytes(cache_.root());
    if (free < 0 || needed <= free) return;
    throw Error(Reason::InsufficientStorage, "the weights of " + repository_.id + " need " +
                                                 base::format_bytes(needed) + " more on " + cache_.root().string() +
                                                 ", " + base::format_bytes(free) +
                                                 " are free; give the volume more room (spec.model.cache.size)");
  }

  /// Downloads missing files concurrently. The first failure ends all downloads.
  void bring(std::vector<File> files) {
    std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.name() < b.name(); });
    files.erase(
        std::unique(files.begin(), files.end(), [](const File& a, const File& b) { return a.name() == b.name(); }),
        files.end());  // files with equal contents at two paths
    progress_.update([this](auto& view) { view.state = "Fetching", count(view); });
    std::atomic<size_t> next{0};
    std::mutex mutex;
    std::exception_ptr failure;
    std::stop_source end;
    const std::stop_callback forward(stop_, [&] { end.request_stop(); });
    const auto work = [&] {
      Client client = this->client(end.get_token());
      try {
        for (size_t i; (i = next++) < files.size();) {
          if (!cache_.has(files[i], listing_.commit))
            download(client, cache_, repository_.id, listing_.commit, files[i], progress_);
        }
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();  // the failures of other threads follow from it
        end.request_stop();
      }
    };
    {
      std::vector<std::jthread> threads;
      for (int i = std::min<int>(options_.connections, static_cast<int>(files.size())); i > 0; --i)
        threads.emplace_back(work);
    }
    if (failure) std::rethrow_exception(failure);
    progress_.update([this](auto& view) { count(view); });
  }

  const Repository& repository_;
  const FetchOptions& options_;
  Progress& progress_;
  const std::stop_token stop_;
  const Cache cache_;
  Listing listing_;
  std::vector<File> small_, large_;
};

}  // namespace

Progress::View Progress::view() const {
  const std::lock_guard lock(mutex_);
  View view = view_;
  view.bytes_per_second = rate_.per_second(std::chrono::steady_clock::now());
  return view;
}

void Progress::update(const std::function<void(View&)>& change) {
  const std::lock_guard lock(mutex_);
  change(view_);
}

void Progress::received(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  view_.fetched += bytes;
  view_.received += bytes;
  rate_.observe(view_.received, std::chrono::steady_clock::now());
  view_.error = {};
}

Fetched fetch(const Repository& repository, const FetchOptions& options, Progress& progress, std::stop_token stop) {
  return Fetch(repository, options, progress, std::move(stop)).run();
}

}  // namespace pm::hub
