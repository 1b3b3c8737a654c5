// SPDX-License-Identifier: Apache-2.0
// Parses preprocessor_config.json and preprocesses images.
#include "worker/image/processor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "worker/image/refusal.h"

namespace pm::image {
namespace {

using nlohmann::json;

constexpr int64_t max_side = 16384;
constexpr int64_t max_patch_side = 256;           // also of squares of patches, and of frames
constexpr int64_t max_bound = 1'000'000'000'000;  // of min_pixels and max_pixels, so that doubles hold all products

Error unreadable(const std::string& file, const std::string& what) {
  return Error(Reason::ModelUnreadable, file + ": " + what);
}

Processor clip() {
  Processor p;
  p.do_center_crop = true;
  p.shortest_edge = 224;
  p.resample = Filter::Bicubic;
  p.mean = {0.48145466, 0.4578275, 0.40821073};
  p.std = {0.26862954, 0.26130258, 0.27577711};
  return p;
}

Processor deit() {
  Processor p;
  p.do_center_crop = true;
  p.height = p.width = 256;
  p.resample = Filter::Bicubic;
  return p;
}

Processor detr() {
  Processor p;
  p.shortest_edge = 800;
  p.longest_edge = 1333;
  p.mean = {0.485, 0.456, 0.406};
  p.std = {0.229, 0.224, 0.225};
  return p;
}

Processor perceiver() {
  Processor p;
  p.do_center_crop = p.crops_first = true;
  p.crop_height = p.crop_width = 256;
  p.resample = Filter::Bicubic;
  p.mean = {0.485, 0.456, 0.406};
  p.std = {0.229, 0.224, 0.225};
  return p;
}

Processor siglip() {
  Processor p;
  p.resample = Filter::Bicubic;
  return p;
}

Processor qwen2_vl() {
  Processor p = clip();
  p.do_center_crop = false;
  p.shortest_edge = 0;
  p.patches.emplace();
  return p;
}

Processor pixtral() {
  Processor p = qwen2_vl();
  p.patches->frames = 1;
  p.patches->within = {1024, 1024};
  return p;
}

/// Returns the defaults of the class for keys that the file lacks.
Processor defaults_of(const std::string& file, const json& config) {
  std::string name;
  for (const char* key : {"image_processor_type", "feature_extractor_type"})
    if (name.empty() && config.contains(key) && config[key].is_string()) name = config[key];
  for (const char* ending : {"Fast", "Pil"})
    if (name.ends_with(ending)) name.resize(name.size() - std::strlen(ending));
  for (const char* ending : {"ImageProcessor", "FeatureExtractor"})
    if (name.ends_with(ending)) name.resize(name.size() - std::strlen(ending));
  if (name == "CLIP") return clip();
  if (name == "DeiT") return deit();
  if (name == "Detr") return detr();
  if (name == "Perceiver") return perceiver();
  if (name == "ViT" || name == "Gemma3") return {};
  if (name == "Siglip") return siglip();
  if (name == "Qwen2VL") return qwen2_vl();
  if (name == "Pixtral") return pixtral();
  throw unreadable(file, "the image processor " +
                             (name.empty() ? "is not named (image_processor_type)" : "\"" + name + "\" is not served") +
                             "; served are those of CLIP, ViT, DeiT, DETR, Perceiver, SigLIP, Gemma 3, Qwen2-VL and "
                             "Pixtral");
}

/// Reads the fields of one file; errors name them.
struct Reader {
  const std::string& file;
  const json& config;

  const json* find(const char* key) const {
    const auto found = config.find(key);
    return found == config.end() || found->is_null() ? nullptr : &*found;
  }
  void flag(const char* key, bool& into) const {
    const auto* value = find(key);
    if (!value) return;
    if (!value->is_boolean())
      throw unreadable(file, std::string(key) + " is " + value->dump() + " instead of true or false");
    into = *value;
  }
  int64_t number(const json& value, const std::string& key, const char* expected, int64_t most) const {
    if (!value.is_number_integer() || value < 1 || value > most)
      throw unreadable(file,
                       key + " is " + value.dump() + " instead of " + expected + " from 1 to " + std::to_string(most));
    return value;
  }
  int64_t side(const json& value, const std::string& key) const {
    return number(value, key, "a number of pixels", max_side);
  }
  void three(const char* key, std::array<double, 3>& into) const {
    const auto* value = find(key);
    if (!value) return;
    if (value->is_number()) {
      into.fill(*value);
      return;
    }
    bool fits = value->is_array() && value->size() == 3;
    for (size_t i = 0; fits && i < 3; ++i) fits = (*value)[i].is_number();
    if (!fits) throw unreadable(file, std::string(key) + " is " + value->dump() + " instead of three numbers");
    for (size_t i = 0; i < 3; ++i) into[i] = (*value)[i];
  }
  void size(Processor& p, bool edge) const {
    const auto* value = find("size");
    if (!value) return;
    if (value->is_number()) {  // the older spelling: CLIP means the shorter side, the others a square
      if (edge) {
        p.shortest_edge = side(*value, "size");
        if (const auto* most = p.longest_edge > 0 ? find("max_size") : nullptr)
          p.longest_edge = side(*most, "max_size");
      } else {
        p.height = p.width = side(*value, "size");
      }
      return;
    }
    if (p.longest_edge > 0 && value->is_object() && value->size() == 2 && value->contains("shortest_edge") &&
        value->contains("longest_edge")) {
      p.shortest_edge = side((*value)["shortest_edge"], "size.shortest_edge");
      p.longest_edge = side((*value)["longest_edge"], "size.longest_edge");
    } else if (p.longest_edge == 0 && value->is_object() && value->size() == 1 && value->contains("shortest_edge")) {
      p.shortest_edge = side((*value)["shortest_edge"], "size.shortest_edge");
    } else if (value->is_object() && value->size() == 2 && value->contains("height") && value->contains("width")) {
      p.shortest_edge = p.longest_edge = 0;
      p.height = side((*value)["height"], "size.height");
      p.width = side((*value)["width"], "size.width");
    } else {
      throw unreadable(file,
                       "size is " + value->dump() + "; served are {\"height\", \"width\"} and " +
                           (p.longest_edge > 0 ? "{\"shortest_edge\", \"longest_edge\"}" : "{\"shortest_edge\"}"));
    }
  }
  void crop(Processor& p) const {
    const auto* value = find("crop_size");
    if (!value) return;
    if (value->is_number()) {
      p.crop_height = p.crop_width = side(*value, "crop_size");
    } else if (value->is_object() && value->contains("height") && value->contains("width")) {
      p.crop_height = side((*value)["height"], "crop_size.height");
      p.crop_width = side((*value)["width"], "crop_size.width");
    } else {
      throw unreadable(file, "crop_size is " + value->dump() + "; served is {\"height\", \"width\"}");
    }
  }
  /// Reads the least and the most pixels as transformers does: min_pixels and max_pixels go before the edges of size,
  /// and the defaults stand in for size as a whole, not for one edge that it lacks.
  void bounds(PatchLayout& layout) const {
    struct Bound {
      const char *key, *edge;
      int64_t& value;
    };
    const Bound all[] = {{"min_pixels", "shortest_edge", layout.min_pixels},
                         {"max_pixels", "longest_edge", layout.max_pixels}};
    const auto* given = find("size");
    json edges = given ? *given : json{{"shortest_edge", layout.min_pixels}, {"longest_edge", layout.max_pixels}};
    bool complete = edges.is_object();
    for (const Bound& bound : all) {
      if (!complete) break;
      if (const auto* value = find(bound.key)) {
        edges[bound.edge] = *value;
        edges.erase(bound.key);  // older files repeat it there
      }
      complete = edges.contains(bound.edge);
    }
    if (!complete || edges.size() != 2)
      throw unreadable(file, "size is " + given->dump() +
                                 "; served are {\"shortest_edge\", \"longest_edge\"}, the least and the most pixels "
                                 "of an image, and min_pixels and max_pixels beside it");
    for (const Bound& bound : all)
      bound.value = number(edges[bound.edge], find(bound.key) ? bound.key : std::string("size.") + bound.edge,
                           "a number of pixels", max_bound);
  }
  /// Reads the height and width within which images stay whole. Those of a patch are the model's.
  void within(PatchLayout& layout) const {
    bool crops = false;
    flag("do_center_crop", crops);
    if (crops) throw unreadable(file, "do_center_crop is true, which is not served for images of any size");
    const auto* size = find("size");
    if (!size) return;
    const auto has = [&](const char* key) { return size->is_object() && size->contains(key); };
    if (has("longest_edge"))
      layout.within.fill(side((*size)["longest_edge"], "size.longest_edge"));
    else if (has("height") && has("width"))
      layout.within = {side((*size)["height"], "size.height"), side((*size)["width"], "size.width")};
    else
      throw unreadable(file, "size is " + size->dump() + "; served are {\"longest_edge\"} and {\"height\", \"width\"}");
  }
  void patches(PatchLayout& layout) const {
    if (layout.is_whole()) return within(layout);
    bounds(layout);
    for (const auto& [key, into] : {std::pair{"patch_size", &layout.patch}, std::pair{"merge_size", &layout.merge},
                                    std::pair{"temporal_patch_size", &layout.frames}})
      if (const auto* value = find(key)) *into = number(*value, key, "a whole number", max_patch_side);
  }
  /// Reads what resizes, crops and pads to one size.
  void frame(Processor& p) const {
    bool pad = false;
    flag("do_pad", pad);
    if (pad && p.longest_edge == 0) throw unreadable(file, "do_pad is true, which is not served");
    bool crops = false;
    flag("do_pan_and_scan", crops);
    if (crops) throw unreadable(file, "do_pan_and_scan is true, which is not served");
    if (find("pad_size")) throw unreadable(file, "pad_size is given, which is not served");
    flag("do_center_crop", p.do_center_crop);
    size(p, p.shortest_edge > 0);
    crop(p);
  }
};

Processor processor_of(const std::string& file, const json& config) {
  Processor p = defaults_of(file, config);
  const Reader read{file, config};
  if (p.patches)
    read.patches(*p.patches);  // transformers' class ignores crops and padding
  else
    read.frame(p);
  read.flag("do_resize", p.do_resize);
  read.flag("do_rescale", p.do_rescale);
  read.flag("do_normalize", p.do_normalize);
  if (const auto* value = read.find("resample")) {
    if (!value->is_number_integer() || *value < 0 || *value > 5)
      throw unreadable(file, "resample is " + value->dump() + " instead of a number from 0 to 5");
    p.resample = static_cast<Filter>(value->get<int>());
  }
  if (const auto* value = read.find("rescale_factor")) {
    if (!value->is_number()) throw unreadable(file, "rescale_factor is " + value->dump() + " instead of a number");
    p.rescale_factor = *value;
  }
  read.three("image_mean", p.mean);
  read.three("image_std", p.std);
  for (double one : p.std)
    if (one == 0) throw unreadable(file, "image_std has a zero");
  return p;
}

}  // namespace

std::optional<Processor> Processor::read(const std::filesystem::path& folder) {
  const auto parsed = [](const std::filesystem::path& path) -> json {
    std::ifstream in(path, std::ios::binary);
    if (!in) return nullptr;
    json config = json::parse(in, nullptr, false);
    if (!config.is_object()) throw unreadable(path.string(), "is not a JSON object");
    return config;
  };
  const auto file = folder / "preprocessor_config.json", whole = folder / "processor_config.json";
  if (const json config = parsed(file); !config.is_null()) return processor_of(file.string(), config);
  const json config = parsed(whole);
  if (config.is_null() || !config.contains("image_processor") || !config["image_processor"].is_object())
    return std::nullopt;
  return processor_of(whole.string(), config["image_processor"]);
}

Image center_crop(const Image& image, int64_t width, int64_t height) {
  // floor((have - want) / 2), also below zero: transformers pads with ceil((want - have) / 2) before the image and then
  // crops from 0.
  const auto place = [](int64_t have, int64_t want) {
    return have >= want ? (have - want) / 2 : -((want - have + 1) / 2);
  };
  Image out{width, height, std::vector<uint8_t>(static_cast<size_t>(width * height * 3))};
  const int64_t left = place(image.width, width), top = place(image.height, height);
  for (int64_t y = 0; y < height; ++y) {
    const int64_t from = y + top;
    if (from < 0 || from >= image.height) continue;
    const int64_t begin = std::max<int64_t>(0, -left), end = std::min(width, image.width - left);
    if (begin >= end) continue;
    std::copy_n(image.rgb.data() + (from * image.width + begin + left) * 3, (end - begin) * 3,
                out.rgb.data() + (y * width + begin) * 3);
  }
  return out;
}

namespace {

/// Returns width and height with the shorter side at `shortest`, or less where the longer side would exceed `longest`.
/// The steps, and where they round, are transformers' (get_size_with_aspect_ratio).
std::pair<int64_t, int64_t> bounded_size(const Image& image, int64_t shortest, int64_t longest) {
  const auto width = static_cast<double>(image.width), height = static_cast<double>(image.height);
  const double less = std::min(width, height), more = std::max(width, height);
  auto side = static_cast<double>(shortest);
  int64_t whole = shortest;
  if (more / less * side > static_cast<double>(longest)) {
    side = static_cast<double>(longest) * less / more;
    whole = std::max<int64_t>(1, std::llrint(side));  // to the even one of two as near
  }
  if (static_cast<int64_t>(less) == whole) return {image.width, image.height};
  if (image.width < image.height) return {whole, static_cast<int64_t>(side * height / width)};
  return {static_cast<int64_t>(side * width / height), whole};
}

}  // namespace

Image Processor::resize_and_crop(const Image& image, const Limits& limits) const {
  if (patches && !patches->is_whole()) throw std::logic_error("this image processor gives patches");
  if (patches) {
    const auto [down, across] = patch_grid(image.width, image.height);
    const int64_t to_width = across * patches->patch, to_height = down * patches->patch;
    check_size(to_width, to_height, limits, "the resized image");
    return do_resize ? resize(image, to_width, to_height, resample) : image;
  }
  Image framed = image;
  if (do_center_crop && crops_first) {
    const auto shorter = static_cast<double>(std::min(image.width, image.height));
    const auto part = [&](int64_t whole, int64_t crop) {  // int(whole / crop * shorter), at least a pixel
      return std::max<int64_t>(1,
                               static_cast<int64_t>(static_cast<double>(whole) / static_cast<double>(crop) * shorter));
    };
    const int64_t to_width = part(width, crop_width), to_height = part(height, crop_height);
    check_size(to_width, to_height, limits, "the cropped image");
    framed = center_crop(image, to_width, to_height);
  }
  if (do_resize) {
    int64_t to_width = width, to_height = height;
    if (longest_edge > 0) {
      std::tie(to_width, to_height) = bounded_size(image, shortest_edge, longest_edge);
    } else if (shortest_edge > 0) {
      const bool upright = image.width <= image.height;
      const int64_t small = upright ? image.width : image.height, large = upright ? image.height : image.width;
      const int64_t longer = shortest_edge * large / small;  // int(edge * long / short)
      to_width = upright ? shortest_edge : longer;
      to_height = upright ? longer : shortest_edge;
    }
    check_size(to_width, to_height, limits, "the resized image");
    framed = resize(framed, to_width, to_height, resample);
  }
  return do_center_crop && !crops_first ? center_crop(framed, crop_width, crop_height) : framed;
}

std::array<float, 256> Processor::levels(size_t channel) const {
  // These are numpy's steps: uint8 to float64, times the factor, to float32; mean and standard deviation in float32.
  std::array<float, 256> table;
  for (size_t byte = 0; byte < 256; ++byte) {
    float value =
        do_rescale ? static_cast<float>(static_cast<double>(byte) * rescale_factor) : static_cast<float>(byte);
    if (do_normalize) value = (value - static_cast<float>(mean[channel])) / static_cast<float>(std[channel]);
    table[byte] = value;
  }
  return table;
}

Array Processor::operator()(const Image& image, const Limits& limits) const {
  const Image pixels = resize_and_crop(image, limits);
  std::vector<float> values(pixels.rgb.size());
  const size_t plane = values.size() / 3;
  for (size_t c = 0; c < 3; ++c) {
    const auto table = levels(c);
    for (size_t i = 0; i < plane; ++i) values[c * plane + i] = table[pixels.rgb[3 * i + c]];
  }
  return {{1, 3, pixels.height, pixels.width}, std::move(values)};
}

}  // namespace pm::image
