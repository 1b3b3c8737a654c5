// See generation_defaults.h.
#include "worker/server/generation_defaults.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "worker/base/error.h"

namespace pm::server {

engine::Sampling read_default_sampling(const std::filesystem::path& folder) {
  engine::Sampling sampling;
  const auto file = folder / "generation_config.json";
  std::ifstream in(file);
  if (!in) return sampling;
  try {
    const auto config = nlohmann::json::parse(in);
    if (!config.is_object()) throw Error(ErrorKind::Model, "ModelUnreadable", file.string() + " holds no JSON object");
    const auto read = [&]<class T>(const char* name, T& into) {
      const auto found = config.find(name);
      if (found != config.end() && !found->is_null()) into = found->template get<T>();
    };
    read("do_sample", sampling.do_sample);
    read("temperature", sampling.temperature);
    read("top_k", sampling.top_k);
    read("top_p", sampling.top_p);
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::Model, "ModelUnreadable", file.string() + ": " + error.what());
  }
  return sampling;
}

}  // namespace pm::server
