// See group.h: what groups of threads and of processes have in common.
#include "worker/engine/group.h"

namespace pm::engine {

StepResult Group::run(const StepMessage& message) {
  const std::vector<uint8_t> bytes = encode(message);
  for (const auto& channel : channels()) channel->send(bytes);
  return leader().run(message);
}

void Group::dismiss() noexcept {
  StepMessage last;
  last.stop = true;
  for (const auto& channel : channels()) {
    try {
      channel->send(encode(last));
    } catch (const std::exception&) {   // that follower has ended already
    }
  }
}

}  // namespace pm::engine
