// See generation_defaults.h.
#include "worker/server/generation_defaults.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "worker/base/error.h"
#include "worker/engine/sampling_json.h"

namespace pm::server {

engine::Sampling read_default_sampling(const std::filesystem::path& folder) {
  engine::Sampling sampling;
  const auto file = folder / "generation_config.json";
  std::ifstream in(file);
  if (!in) return sampling;
  try {
    const auto config = nlohmann::json::parse(in);
    if (!config.is_object()) throw Error(ErrorKind::Model, "ModelUnreadable", file.string() + " holds no JSON object");
    engine::read_sampling(config, sampling);
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::Model, "ModelUnreadable", file.string() + ": " + error.what());
  }
  return sampling;
}

}  // namespace pm::server
