// SPDX-License-Identifier: Apache-2.0
// A user's policy file: read, checked, and laid on a small checkpoint of the model type that it is for (PM_FUZZ_WORLDS,
// by seeds.py).
#include <optional>

#include "tests/fuzz/input.h"
#include "tests/unit/worker/checkpoint/folder.h"
#include "worker/policy/document.h"
#include "worker/policy/report.h"
#include "worker/policy/resolve.h"

namespace {

using pm::checkpoint::Checkpoint;

std::map<std::string, Checkpoint> worlds() {
  std::map<std::string, Checkpoint> all;
  const char* folder = std::getenv("PM_FUZZ_WORLDS");
  pm::fuzz::hold(folder != nullptr, "PM_FUZZ_WORLDS does not name the folder of checkpoints");
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.is_directory()) all.emplace(entry.path().filename().string(), Checkpoint::open(entry.path()));
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::map<std::string, Checkpoint> known = worlds();
  static const pm::checkpoint::Folder folder;
  const std::string text = pm::fuzz::text(data, size);
  try {
    const std::vector<std::string> types = pm::policy::model_types(pm::policy::parse_policy(text, "fuzz.yaml"));
    const auto world = types.empty() ? known.end() : known.find(types.front());
    if (world == known.end()) return 0;
    folder.write("fuzz.yaml", text);
    const pm::policy::Model model = pm::policy::resolve(world->second, folder.path / "fuzz.yaml");
    pm::fuzz::hold(!pm::policy::inspect_report(model).empty(), "a model without a report");
  } catch (const pm::Error&) {
  }
  return 0;
}
