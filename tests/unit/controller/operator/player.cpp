#include "player.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

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
    if (extent_ == Extent::Whole || !world.over() || !sees(world)) return false;
    Moment moment = moment_of(world);
    const Future* future = recording_ ? nullptr : known(moment);
    if (!future) {
      if (recording_) book_.calm_moments.emplace(moment, world.cluster);
      passed_.push_back({std::move(moment), world.place().second, world.cluster.violations.size(), std::exchange(world.most_behind, 0)});
      return false;
    }
    if (world.place().second + future->seconds > World::most_seconds) return false;
    out_.ending = future->ending, broken_after_ = future->broken;
    world.most_behind = std::max(world.most_behind, future->most_behind);
    rest_seconds_.resize(part_, 0);
    rest_seconds_.push_back(world.place().second + future->seconds);
    judge(world);
    return true;
  }

  /// At one of the calm story's moments, to the version: the other process holds on to versions of it.
  bool skip(World& world) override {
    if (extent_ == Extent::Whole || !sees(world)) return false;
    const auto found = book_.calm_moments.find(moment_of(world));
    if (found == book_.calm_moments.end() || !found->second.same_versions(world.cluster)) return false;
    world.rest_as(*book_.rests.at(part_));
    return true;
  }

 private:
  struct Passed {
    Moment moment;
    int second;
    size_t broken;
    size_t most_behind;                 ///< since the one before
  };

  /// The stores hold what is in the cluster, and nothing is about to be given up.
  static bool sees(World& world) { return world.place().passes <= 50 && world.replica().knows_all(); }

  Moment moment_of(World& world) const {
    const Replica& replica = world.replica();
    EXPECT_TRUE(replica.memo().heard.empty()) << "moments do not hold what Events said: no story has pods whose volumes do not come";
    Moment out{part_, world.place().still, world.place().silent, world.cluster.version() != world.place().before, world.flushes(), replica.wanted(), std::nullopt, replica.memo().gone, {}, {}};
    if (!out.wanted && replica.wake()) out.wake = *replica.wake() - world.cluster.now();
    out.objects = world.cluster.numbers(book_.numbers, out.ages);
    return out;
  }

  const Future* known(const Moment& moment) const {
    const auto [begin, end] = book_.futures.equal_range(moment);
    const auto found = std::find_if(begin, end, [&](const auto& entry) { return entry.second.holds_for(lag()); });
    return found == end ? nullptr : &found->second;
  }

  size_t lag() const { return trouble_.kind == Trouble::Kind::Lag ? trouble_.at : 0; }

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
      world_->cluster = book_.rests.at(part)->cluster;
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
      book_.rests.push_back(std::make_unique<World>(*world_, Trouble{}));
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
    size_t most = lag() ? world_->most_behind : SIZE_MAX;
    for (auto one = passed_.rbegin(); one != passed_.rend(); ++one) {
      const int seconds = rest_seconds_.at(one->moment.part) - one->second;
      if (!known(one->moment)) book_.futures.emplace(std::move(one->moment), Future{out_.ending, seconds, broken_ - one->broken, lag(), most});
      most = std::max(most, one->most_behind);
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
  size_t out = moment.part * 31 + static_cast<size_t>(moment.wake.value_or(k8s::WallTime::duration(-1)).count());
  const auto mix = [&](size_t value) { out = (out ^ value) * 1099511628211u; };
  mix(static_cast<size_t>(moment.silent) << 8 | static_cast<size_t>(moment.changed) << 1 | static_cast<size_t>(moment.wanted));
  for (uint32_t number : moment.objects) mix(number);
  for (int64_t age : moment.ages) mix(static_cast<size_t>(age));
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
