// Plays a story with one trouble in it, and of that only what was not played before.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "numbers.h"
#include "scenarios.h"
#include "world.h"

namespace pm::op::test {

/// How a story ends. Promises that were broken on the way are told to the test when they are.
struct Ending {
  Json digest, shape;
  int needless = 0;                     ///< writes after all had come to rest
};

/// Everything that the future of a world depends on when its trouble is over and the operator is between two passes, whose stores hold what is in the cluster. Not what time it is: times
/// count by how long ago they are.
struct Moment {
  size_t part = 0;                      ///< of the story: rests that there were
  int still = 0, silent = 0;
  bool changed = false;                 ///< something, in this second
  bool flushes = false;                 ///< of World
  bool wanted = false;                  ///< a pass is due
  std::optional<k8s::WallTime::duration> wake;   ///< from now; nothing when a pass is due, which forgets it
  std::string gone;                     ///< of Memo
  std::vector<uint32_t> objects;        ///< by Numbers
  std::vector<int64_t> ages;            ///< of the times in them, in seconds
  bool operator==(const Moment&) const = default;
};

struct HashOfMoment {
  size_t operator()(const Moment&) const;
};

/// What follows from a moment.
struct Future {
  std::shared_ptr<const Ending> ending;
  int seconds = 0;                      ///< to the next rest
  size_t broken = 0;                    ///< promises
  size_t lag = 0, most_behind = 0;      ///< of a world that lags so far: events of a collection that waited at once, at most. If they were never more than `lag`, a longer one changes nothing

  /// For a world that lags so far.
  bool holds_for(size_t events) const { return lag == events || (most_behind <= lag && most_behind <= events); }
};

/// A story without trouble, and all that is known of it.
class Book {
 public:
  /// Plays it. Expects that nothing is written once it has come to rest, after each part.
  explicit Book(const Scenario&);
  /// The one of this process.
  static Book& of(const Scenario&);

  struct Bookmark {
    size_t part = 0;
    World world;                        ///< in front of a second or a request
    explicit Bookmark(size_t part_, const World& from) : part(part_), world(from, Trouble{}) {}
  };
  /// The last one in front of the trouble.
  const Bookmark& before(const Trouble&) const;

  const Scenario& scenario;
  std::shared_ptr<const Ending> calm;
  size_t requests = 0;
  std::map<std::string, size_t> events;
  std::vector<std::unique_ptr<Bookmark>> bookmarks;
  std::vector<std::unique_ptr<World>> rests;    ///< after each part
  std::unordered_map<Moment, FakeCluster, HashOfMoment> calm_moments;
  std::unordered_multimap<Moment, Future, HashOfMoment> futures;
  Numbers numbers;
};

/// How much of a case is played.
enum class Extent {
  Needed,         ///< from the moment before its trouble to one that was met before, in this story or with another trouble
  Whole,          ///< everything, with processes that know nothing
};

struct Played {
  std::shared_ptr<const Ending> ending; ///< null: it did not come to rest
  int requests = 0;                     ///< sent for it
  bool met_before = false;              ///< its end was known from a moment on
};

/// Adds failures to the test: what does not come to rest, promises that are broken (but with two operators at once), needless writes.
Played play(Book&, const Trouble&, Extent);

}  // namespace pm::op::test
