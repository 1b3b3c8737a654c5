// SPDX-License-Identifier: Apache-2.0
#include "worker/server/images/prompt_images.h"

#include <algorithm>

#include "base/digest.h"
#include "worker/server/http/api_error.h"
#include "worker/server/tasks/forward_runner.h"
#include "worker/server/tasks/task_request.h"

namespace pm::server {

ImageRowCache::Rows ImageRowCache::find(const std::string& digest) {
  const std::lock_guard lock(mutex_);
  const auto found = by_digest_.find(digest);
  if (found == by_digest_.end()) return {};
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->rows;
}

ImageRowCache::Rows ImageRowCache::keep(const std::string& digest, std::vector<float> values) {
  const std::lock_guard lock(mutex_);
  if (const auto found = by_digest_.find(digest); found != by_digest_.end()) return found->second->rows;
  const size_t size = values.size() * sizeof(float);
  Rows rows{.key = --last_key_, .values = std::make_shared<const std::vector<float>>(std::move(values))};
  if (size > max_bytes_) return rows;
  while (bytes_ + size > max_bytes_) {
    bytes_ -= entries_.back().rows.values->size() * sizeof(float);
    by_digest_.erase(entries_.back().digest);
    entries_.pop_back();
  }
  entries_.push_front({digest, rows});
  by_digest_[digest] = entries_.begin();
  bytes_ += size;
  return rows;
}

namespace {

[[noreturn]] void refuse_prompt(size_t images, size_t found, const std::string& what) {
  throw ApiError(400, "invalid_value",
                 "messages have " + std::to_string(images) +
                     " images, and the prompt that the chat template makes of them has " + std::to_string(found) + " " +
                     what + "; a text must not have such a token itself",
                 "messages");
}

}  // namespace

std::string spell_images(const ServerContext& context, size_t images, std::string_view prompt) {
  const policy::ImageTokens& tokens = *context.capabilities.prompt_images;
  const policy::ImageSpelling& spelling = tokens.spelling;
  const auto text_of = [&](int64_t id) {
    return id < 0 ? std::string() : context.tokenizer->id_to_token(static_cast<int32_t>(id));
  };
  const std::string placeholder = text_of(spelling.placeholder), token = text_of(tokens.token);
  std::string image = spelling.before + text_of(spelling.begin);
  for (int64_t row = 0; row < tokens.rows; ++row) image += token;
  image += text_of(spelling.end) + spelling.after;
  std::string spelled;
  size_t found = 0;
  for (size_t at = 0; !placeholder.empty();) {
    const size_t next = prompt.find(placeholder, at);
    spelled += prompt.substr(at, next - at);
    if (next == std::string_view::npos) break;
    spelled += image;
    ++found;
    at = next + placeholder.size();
  }
  if (found != images) refuse_prompt(images, found, "tokens of images");
  return spelled;
}

std::vector<engine::PromptImage> find_images(const ServerContext& context, size_t images,
                                             const std::vector<int32_t>& ids) {
  const policy::ImageTokens& tokens = *context.capabilities.prompt_images;
  std::vector<engine::PromptImage> placed;
  size_t found = 0;
  for (size_t place = 0; place < ids.size(); ++place) {
    if (ids[place] != tokens.token) continue;
    engine::PromptImage* last = placed.empty() ? nullptr : &placed.back();
    const bool continues =
        last && last->tokens < tokens.rows && last->first + last->tokens == static_cast<int64_t>(place);
    if (continues)
      ++last->tokens;
    else
      placed.push_back({.first = static_cast<int64_t>(place), .tokens = 1, .rows = nullptr});
    ++found;
  }
  const bool whole = std::all_of(placed.begin(), placed.end(),
                                 [&](const engine::PromptImage& image) { return image.tokens == tokens.rows; });
  if (placed.size() != images || !whole)
    refuse_prompt(images, found, "tokens for their rows, of which each image has " + std::to_string(tokens.rows));
  return placed;
}

void fill_image_rows(const ServerContext& context, const RoutedRequest& call,
                     const std::vector<ImageReference>& references, std::vector<engine::PromptImage>& images) {
  const auto take = [&](size_t number, const ImageRowCache::Rows& rows) {
    images.at(number).key = rows.key;
    images.at(number).rows = rows.values;
  };
  std::vector<std::string> digests;
  std::map<std::string, std::vector<size_t>> missing;  // by digest: the images that have it
  std::vector<Array> pixels;                           // of the first one with each
  std::vector<std::string> computed;
  for (const ImageReference& reference : references) {
    const size_t number = digests.size();
    const std::string file = read_image_url(context, reference.url, reference.field);
    digests.push_back(base::sha256(file));
    if (const ImageRowCache::Rows rows = context.image_rows->find(digests.back()); rows.values) {
      take(number, rows);
      continue;
    }
    std::vector<size_t>& same = missing[digests.back()];
    if (same.empty()) {
      pixels.push_back(decode_image_file(context, file, reference.field));
      computed.push_back(digests.back());
    }
    same.push_back(number);
  }
  if (pixels.empty()) return;
  ForwardBatch batch{.inputs = {{"pixel_values", stack_images(pixels, "messages")}},
                     .outputs = {policy::image_rows_output}};
  std::vector<ForwardBatch> batches;
  batches.push_back(std::move(batch));
  const std::vector<Arrays> outputs = run_forward_passes(context, call, std::move(batches));
  const std::vector<float>& all = float_values(outputs.at(0), policy::image_rows_output, 2);
  const auto size = static_cast<std::ptrdiff_t>(all.size() / pixels.size());
  for (size_t i = 0; i < computed.size(); ++i) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(i) * size;
    const ImageRowCache::Rows rows = context.image_rows->keep(computed[i], {begin, begin + size});
    for (const size_t number : missing[computed[i]]) take(number, rows);
  }
}

}  // namespace pm::server
