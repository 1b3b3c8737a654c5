// SPDX-License-Identifier: Apache-2.0
#include "worker/server/images/prompt_images.h"

#include <algorithm>

#include "base/digest.h"
#include "worker/server/http/api_error.h"
#include "worker/server/tasks/forward_runner.h"
#include "worker/server/tasks/task_request.h"

namespace pm::server {

ImageRowCache::Counts ImageRowCache::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

ImageRowCache::Rows ImageRowCache::find(const std::string& digest) {
  const std::lock_guard lock(mutex_);
  const auto found = by_digest_.find(digest);
  ++counts_.queries;
  if (found == by_digest_.end()) return {};
  ++counts_.hits;
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

std::vector<PromptImageFile> read_prompt_images(const ServerContext& context,
                                                const std::vector<ImageReference>& references) {
  const Capabilities& can = context.capabilities;
  std::vector<PromptImageFile> files;
  int64_t tokens = 0;
  for (const ImageReference& reference : references) {
    PromptImageFile& file = files.emplace_back();
    file.bytes = read_image_url(context, reference.url, reference.field);
    file.field = reference.field;
    file.tokens = can.prompt_images->rows;
    if (file.tokens == 0) {
      const PatchGridSize grid = patch_grid_of_file(context, file.bytes, file.field);
      const int64_t merge = can.images->patches->merge;
      file.down = grid.down / merge;
      file.across = grid.across / merge;
      file.tokens = file.down * file.across;
    }
    tokens += file.tokens;
    if (tokens >= context.max_model_len)  // before so many tokens are spelled
      throw ApiError(400, "context_length_exceeded",
                     "messages has images of at least " + std::to_string(tokens) + " tokens; the context window of " +
                         std::to_string(context.max_model_len) + " tokens must hold them and the text",
                     "messages");
  }
  return files;
}

namespace {

/// Returns the tokens of an image, row by row where texts stand between its rows.
std::string spelled_rows(const PromptImageFile& file, const std::string& token, const policy::ImageSpelling& spelling) {
  std::string spelled;
  for (int64_t i = 0; i < file.tokens; ++i) {
    spelled += token;
    if (file.across > 0 && (i + 1) % file.across == 0)
      spelled += i + 1 < file.tokens ? spelling.between : spelling.last;
  }
  return spelled;
}

}  // namespace

std::string spell_images(const ServerContext& context, const std::vector<PromptImageFile>& files,
                         std::string_view prompt) {
  const policy::ImageTokens& tokens = *context.capabilities.prompt_images;
  const policy::ImageSpelling& spelling = tokens.spelling;
  const auto text_of = [&](int64_t id) {
    return id < 0 ? std::string() : context.tokenizer->id_to_token(static_cast<int32_t>(id));
  };
  const std::string placeholder = text_of(spelling.placeholder), token = text_of(tokens.token);
  std::string spelled;
  size_t found = 0;
  for (size_t at = 0; !placeholder.empty();) {
    const size_t next = prompt.find(placeholder, at);
    spelled += prompt.substr(at, next - at);
    if (next == std::string_view::npos) break;
    spelled += spelling.before + text_of(spelling.begin);
    if (found < files.size()) spelled += spelled_rows(files[found], token, spelling);
    spelled += text_of(spelling.end) + spelling.after;
    ++found;
    at = next + placeholder.size();
  }
  if (found != files.size()) refuse_prompt(files.size(), found, "tokens of images");
  return spelled;
}

std::vector<PlacedImage> find_images(const ServerContext& context, const std::vector<PromptImageFile>& files,
                                     const std::vector<int32_t>& ids) {
  const policy::ImageTokens& tokens = *context.capabilities.prompt_images;
  const auto token = static_cast<int32_t>(tokens.token);
  std::vector<PlacedImage> placed;
  const auto found = std::count(ids.begin(), ids.end(), token);
  auto at = ids.begin();
  const auto take = [&](const PromptImageFile& file) {
    // with texts between them, each row stands alone
    const bool in_rows = !tokens.spelling.between.empty() && file.across > 0;
    const int64_t run = in_rows ? file.across : file.tokens;
    PlacedImage& image = placed.emplace_back();
    for (int64_t row = 0; row < file.tokens; row += run) {
      at = std::find(at, ids.end(), token);
      const int64_t first = at - ids.begin(), left = ids.end() - at;
      if (left < run || std::any_of(at, at + run, [&](int32_t id) { return id != token; })) return false;
      image.parts.push_back({.first = first, .tokens = run, .rows = nullptr, .first_row = row});
      if (context.capabilities.image_axes) image.parts.back().down = file.down, image.parts.back().across = file.across;
      at += run;
    }
    return true;
  };
  const bool whole = std::all_of(files.begin(), files.end(), take);
  if (!whole || std::find(at, ids.end(), token) != ids.end()) {
    int64_t expected = 0;
    for (const PromptImageFile& file : files) expected += file.tokens;
    refuse_prompt(files.size(), static_cast<size_t>(found),
                  "tokens for their rows, of which they have " + std::to_string(expected));
  }
  return placed;
}

namespace {

/// An image whose rows are to be computed, and the requests' images that are it.
struct MissingImage {
  const PromptImageFile* file;
  std::string digest;
  std::vector<size_t> numbers;
};

/// Computes the rows of images, of which all have one size or each is a forward pass of its own.
std::vector<std::vector<float>> compute_rows(const ServerContext& context, const RoutedRequest& call,
                                             const std::vector<MissingImage>& images) {
  std::vector<ForwardBatch> batches;
  if (context.capabilities.prompt_images->rows > 0) {
    std::vector<Array> pixels;
    for (const MissingImage& image : images)
      pixels.push_back(decode_image_file(context, image.file->bytes, image.file->field));
    batches.push_back(
        {.inputs = {{"pixel_values", stack_images(pixels, "messages")}}, .outputs = {policy::image_rows_output}});
  } else {
    for (const MissingImage& image : images)
      batches.push_back({.inputs = decode_image_patches(context, image.file->bytes, image.file->field),
                         .outputs = {policy::image_rows_output}});
  }
  const size_t each = images.size() / batches.size();
  std::vector<std::vector<float>> rows;
  for (const Arrays& outputs : run_forward_passes(context, call, std::move(batches))) {
    const std::vector<float>& all = float_values(outputs, policy::image_rows_output, 2);
    const auto size = static_cast<std::ptrdiff_t>(all.size() / each);
    for (auto begin = all.begin(); begin != all.end(); begin += size) rows.emplace_back(begin, begin + size);
  }
  return rows;
}

/// The images of any size whose patches are in memory at once have at most so many tokens together, or are one.
constexpr int64_t most_tokens_at_once = 4096;

}  // namespace

void fill_image_rows(const ServerContext& context, const RoutedRequest& call, const std::vector<PromptImageFile>& files,
                     std::vector<PlacedImage>& images) {
  const auto take = [&](size_t number, const ImageRowCache::Rows& rows) {
    for (engine::PromptImage& part : images.at(number).parts) part.key = rows.key, part.rows = rows.values;
  };
  std::vector<MissingImage> missing;
  for (size_t number = 0; number < files.size(); ++number) {
    const std::string digest = base::sha256(files[number].bytes);
    const auto same =
        std::find_if(missing.begin(), missing.end(), [&](const MissingImage& image) { return image.digest == digest; });
    if (same != missing.end())
      same->numbers.push_back(number);
    else if (const ImageRowCache::Rows rows = context.image_rows->find(digest); rows.values)
      take(number, rows);
    else
      missing.push_back({&files[number], digest, {number}});
  }
  const bool any_size = context.capabilities.prompt_images->rows == 0;
  for (auto begin = missing.begin(); begin != missing.end();) {
    auto end = begin;
    for (int64_t tokens = 0; end != missing.end(); ++end) {
      tokens += end->file->tokens;
      if (any_size && end != begin && tokens > most_tokens_at_once) break;
    }
    const std::vector<MissingImage> part(begin, end);
    std::vector<std::vector<float>> rows = compute_rows(context, call, part);
    for (size_t i = 0; i < part.size(); ++i) {
      const ImageRowCache::Rows kept = context.image_rows->keep(part[i].digest, std::move(rows.at(i)));
      for (const size_t number : part[i].numbers) take(number, kept);
    }
    begin = end;
  }
}

}  // namespace pm::server
