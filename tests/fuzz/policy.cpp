// A user's policy file: read, checked, and laid on a small GPT-2 checkpoint.
#include <optional>

#include "tests/fuzz/input.h"
#include "tests/unit/worker/policy/synthetic.h"
#include "worker/policy/document.h"
#include "worker/policy/model.h"

namespace {

struct World {
  World() { pm::policy::tiny_gpt2().write(folder), checkpoint = pm::checkpoint::Checkpoint::open(folder.path); }
  pm::checkpoint::Folder folder;
  std::optional<pm::checkpoint::Checkpoint> checkpoint;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const World world;
  const std::string text = pm::fuzz::text(data, size);
  try {
    pm::policy::parse_policy(text, "fuzz.yaml");
    world.folder.write("fuzz.yaml", text);
    pm::policy::resolve(*world.checkpoint, world.folder.path / "fuzz.yaml");
  } catch (const pm::Error&) {
  }
  return 0;
}
