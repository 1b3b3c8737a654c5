// Checkpoints whose weights are not in their folder: looked at where they are, without a copy.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "worker/checkpoint/bytes.h"

namespace pm::checkpoint {

/// While it lives, checkpoints that this thread opens take the bytes of their weights from `open`, which gets the name of a file and may throw Error{Model}. Their folder has config.json and the
/// index, and an empty file for each of the weights. For looking only: nothing but Checkpoint::read and equal reaches those bytes. Checkpoints may outlive
/// it, not what `open` refers to.
class Elsewhere {
 public:
  using Open = std::function<Bytes(const std::string& file)>;
  explicit Elsewhere(Open open);
  ~Elsewhere();
  Elsewhere(const Elsewhere&) = delete;
  Elsewhere& operator=(const Elsewhere&) = delete;
  /// Nothing while no Elsewhere lives in this thread.
  static const Open* present();

 private:
  const Open open_;
  const Elsewhere* const before_;
};

/// What a checkpoint holds instead of a descriptor: the bytes ride on the deleter, where whoever has the pointer finds them again.
struct RemoteFile {
  Bytes bytes;
  void operator()(const int* none) const { delete none; }
};

}  // namespace pm::checkpoint
