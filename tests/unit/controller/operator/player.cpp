#include "player.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pm::op::test {

namespace {

/// Ends a story from within.
struct Known {};

class Player final : public World::Watcher {
 public:
  /// `recording`: the story is played for its book, without trouble.
  Player(Book& book, const Trouble& trouble, Extent extent, bool recording = false)
      : book_(book), trouble_(trouble), extent_(extent), recording_(recording) {}

  Played play() {
    const bool cut = extent_ == Extent::Needed && !recording_;
    try {
      if (cut && trouble_.kind != Trouble::Kind::Lag) branch();
      world_ = std::make_unique<World>(trouble_, cut);
      world_->watcher = this;
      book_.scenario.play(world_->cluster, [&] { settle(); });
      finish();
    } catch (const Known&) {
      out_.met_before = true;
    }
    if (testing::Test::HasFailure()) return {};
    if (extent_ == Extent::Needed) learn();
    return out_;
  }

  void moment(const World& world) override {
    if (recording_) book_.bookmarks.push_back(std::make_unique<Book::Bookmark>(part_, world));
  }

  bool leave(World& world) override {
    if (extent_ == Extent::Whole || !world.over() || world.place().passes > 50 || !world.replica().knows_all()) return false;
    Moment moment{part_, world.cluster.now(), world.place().still, world.place().silent, world.cluster.version() != world.place().before, world.replica().wanted(), world.replica().wake(),
                  world.replica().memo().gone, world.cluster.numbers(book_.numbers)};
    const auto found = recording_ ? book_.futures.end() : book_.futures.find(moment);
    if (found == book_.futures.end()) {
      passed_.push_back({std::move(moment), world.place().second, world.cluster.violations.size()});
      return false;
    }
    const Future& future = found->second;
    if (world.place().second + future.seconds > World::most_seconds) return false;
    out_.ending = future.ending, broken_after_ = future.broken;
    rest_seconds_.resize(part_, 0);
    rest_seconds_.push_back(world.place().second + future.seconds);
    judge(world);
    return true;
  }

 private:
  struct Passed {
    Moment moment;
    int second;
    size_t broken;
  };

  /// From the last bookmark on to the end of its part, where the story is needed again.
  void branch() {
    const Book::Bookmark& mark = book_.before(trouble_);
    first_part_ = part_ = mark.part;
    branch_ = std::make_unique<World>(mark.world, trouble_);
    branch_->watcher = this;
    const int before = branch_->requests;
    const World::End end = branch_->go_on();
    out_.requests += branch_->requests - before;
    if (end == World::End::Left) throw Known{};
    EXPECT_TRUE(end == World::End::Rest) << "did not converge";
    rest_seconds_.resize(part_, 0);
    rest_seconds_.push_back(branch_->place().second);
    part_ = 0;
  }

  void settle() {
    if (testing::Test::HasFailure()) return;
    const size_t part = part_++;
    if (branch_ && part < first_part_) {
      world_->cluster = book_.rests.at(part);
      return;
    }
    if (branch_ && part == first_part_) return world_->become(*branch_);
    --part_;
    const int before = world_->requests;
    const World::End end = world_->settle();
    out_.requests += world_->requests - before;
    ++part_;
    if (end == World::End::Left) throw Known{};
    ASSERT_TRUE(end == World::End::Rest) << "did not converge";
    rest_seconds_.push_back(world_->place().second);
    if (recording_) {
      book_.rests.push_back(world_->cluster);
      World copy(*world_, Trouble{});
      EXPECT_EQ(needless(copy), 0) << "a needless write after part " << part;
    }
  }

  static int needless(World& world) {
    const int writes = world.cluster.writes;
    EXPECT_TRUE(world.settle() == World::End::Rest);
    return world.cluster.writes - writes;
  }

  void finish() {
    if (testing::Test::HasFailure()) return;
    Ending ending{world_->cluster.digest(), world_->cluster.shape(), 0};
    if (recording_) book_.requests = static_cast<size_t>(world_->requests), book_.events = world_->heard;
    world_->watcher = nullptr;
    const int before = world_->requests;
    ending.needless = needless(*world_);
    out_.requests += world_->requests - before;
    out_.ending = std::make_shared<const Ending>(std::move(ending));
    judge(*world_);
  }

  void judge(const World& world) {
    broken_ = world.cluster.violations.size() + broken_after_;
    EXPECT_TRUE(trouble_.kind == Trouble::Kind::Second || broken_ == 0) << broken_after_ << " promises, known from another case, and " << testing::PrintToString(world.cluster.violations);
    EXPECT_EQ(out_.ending->needless, 0) << "a needless write after convergence";
  }

  /// What this case has shown of the moments that it passed.
  void learn() {
    for (Passed& one : passed_) {
      const int seconds = rest_seconds_.at(one.moment.part) - one.second;
      book_.futures.emplace(std::move(one.moment), Future{out_.ending, seconds, broken_ - one.broken});
    }
  }

  Book& book_;
  const Trouble& trouble_;
  const Extent extent_;
  const bool recording_;
  std::unique_ptr<World> world_;
  std::unique_ptr<World> branch_;       ///< the first part that is not the calm one's
  size_t part_ = 0, first_part_ = 0;
  size_t broken_ = 0, broken_after_ = 0;
  std::vector<int> rest_seconds_;       ///< by part: when it rested, in seconds from its begin
  std::vector<Passed> passed_;
  Played out_;
};

}  // namespace

size_t HashOfMoment::operator()(const Moment& moment) const {
  size_t out = moment.part * 31 + static_cast<size_t>(moment.now.time_since_epoch().count());
  const auto mix = [&](size_t value) { out = (out ^ value) * 1099511628211u; };
  mix(static_cast<size_t>(moment.silent) << 8 | static_cast<size_t>(moment.changed) << 1 | static_cast<size_t>(moment.wanted));
  for (uint32_t number : moment.objects) mix(number);
  return out;
}

Book::Book(const Scenario& of) : scenario(of) {
  calm = Player(*this, Trouble{}, Extent::Needed, true).play().ending;
}

Book& Book::of(const Scenario& scenario) {
  static std::map<std::string, std::unique_ptr<Book>> books;
  auto& book = books[scenario.name];
  if (!book) book = std::make_unique<Book>(scenario);
  return *book;
}

const Book::Bookmark& Book::before(const Trouble& trouble) const {
  const auto passed = [&](const World& world) {
    const auto heard = world.heard.find(trouble.plural);
    return trouble.by_event() ? heard != world.heard.end() && heard->second > trouble.at : static_cast<size_t>(world.requests) > trouble.at;
  };
  const auto end = std::partition_point(bookmarks.begin(), bookmarks.end(), [&](const auto& mark) { return !passed(mark->world); });
  return **std::prev(end);
}

Played play(Book& book, const Trouble& trouble, Extent extent) { return Player(book, trouble, extent).play(); }

}  // namespace pm::op::test
