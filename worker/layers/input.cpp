// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/input.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace pm::layers {

ClusteredTable::ClusteredTable(const policy::Input& input, Loader& loader) {
  int64_t first = 0;
  for (const policy::TokenCluster& cluster : input.clusters) {
    const policy::Param& table = cluster.table ? *cluster.table : *input.token;
    clusters_.push_back({first, table.shape[0], Table(table, loader), loader.load(cluster.projection).to(at::kFloat)});
    first += table.shape[0];
  }
}

at::Tensor ClusteredTable::partial(const at::Tensor& ids) const {
  at::Tensor sum;
  for (const auto& [first, count, table, projection] : clusters_) {
    const at::Tensor row = ids - first, is_other = at::logical_or(row < 0, row >= count).unsqueeze(1);
    const at::Tensor own = table.partial(row.clamp(0, count - 1)).masked_fill(is_other, 0);
    // The projection is linear: it takes this rank's rows, and the sum over ranks adds what it makes of them.
    sum = sum.defined() ? at::addmm(sum, own, projection.t()) : at::mm(own, projection.t());
  }
  return sum;
}

namespace {

/// Returns the frequencies of sinusoids, as policy::PositionKind describes them. An odd width has one more sine than
/// cosines in Paper, and a zero behind them in Tensor2Tensor.
at::Tensor frequencies_of(policy::PositionKind kind, int64_t width) {
  const double log = std::log(10000.0);
  if (kind == policy::PositionKind::Paper)
    return at::exp(at::arange((width + 1) / 2, at::kDouble) * (-2 * log / static_cast<double>(width)));
  const int64_t count = width / 2;
  if (kind == policy::PositionKind::Tensor2Tensor)
    return at::exp(at::arange(count, at::kFloat) * (-log / static_cast<double>(count - 1)));
  return {};
}

std::vector<Types> types_of(const std::vector<policy::IndexTable>& tables, Loader& loader) {
  std::vector<Types> types;
  for (const policy::IndexTable& table : tables)
    types.push_back({table.key(), Table(table.table, loader), table.skip_if_absent});
  return types;
}

/// Adds the rows that the indices look up to x; -1 adds nothing.
at::Tensor with_types(at::Tensor x, const std::vector<Types>& types, const std::map<std::string, at::Tensor>& numbers) {
  for (const auto& [key, table, given] : types) {
    const at::Tensor& rows = numbers.at(key);
    x = x + (given ? table.partial(rows.clamp_min(0)) * (rows >= 0).unsqueeze(1) : table.partial(rows));
  }
  return x;
}

}  // namespace

Features::Features(const policy::Features& features, const policy::Param& tokens, Loader& loader)
    : projection_(features.projection, loader),
      width_(features.projection.weight.shape[0]),
      positions_(features.positions ? std::optional<Table>(std::in_place, *features.positions, loader) : std::nullopt),
      tokens_(tokens, loader),
      types_(types_of(features.tables, loader)) {}

at::Tensor Features::partial(const FeatureRows& features, int64_t offset) const {
  const int64_t vectors = features.values.size(0);
  at::Tensor x = positions_ ? positions_->partial(at::zeros({vectors}, features.rows.options()))
                            : at::zeros({vectors, width_}, features.values.options());
  if (features.aligned.defined())
    x.index_add_(0, features.aligned, tokens_.partial(features.positions + offset) * features.shares.unsqueeze(1));
  return x;
}

at::Tensor Features::projected(const FeatureRows& features) const {
  return with_types(projection_(features.values), types_, features.types);
}

Entities::Entities(const policy::Entities& entities, Loader& loader)
    : table_(entities.table, loader),
      positions_(entities.positions, loader),
      types_(types_of(entities.tables, loader)) {
  if (entities.projection) projection_.emplace(*entities.projection, loader);
  if (entities.norm) norm_.emplace(*entities.norm, loader);
}

at::Tensor Entities::partial(const EntityRows& entities) const {
  at::Tensor x = table_.partial(entities.ids);
  // The projection is linear: it takes this rank's rows, and the sum over ranks adds what it makes of them.
  if (projection_) x = projection_->product(x);
  if (entities.mentioned.numel() == 0) return x;
  return x.index_add(0, entities.mentioned, positions_.partial(entities.positions) * entities.shares.unsqueeze(1));
}

at::Tensor Entities::normed(const at::Tensor& x, const EntityRows& entities) const {
  at::Tensor sum = projection_ && projection_->bias().defined() ? x + projection_->bias() : x;
  sum = with_types(sum, types_, entities.types);
  return norm_ ? (*norm_)(sum) : sum;
}

VectorInput::VectorInput(const policy::Vectors& vectors, Loader& loader) {
  for (const policy::Vectors::Part& part : vectors.parts) {
    parts_.push_back({Linear(part.projection, loader), {}});
    if (part.norm) parts_.back().norm.emplace(*part.norm, loader);
  }
}

at::Tensor VectorInput::operator()(const std::vector<at::Tensor>& parts) const {
  if (parts.size() != parts_.size())
    throw std::logic_error("a batch has " + std::to_string(parts.size()) + " parts of vectors, the stack " +
                           std::to_string(parts_.size()));
  at::Tensor sum;
  for (size_t i = 0; i < parts_.size(); ++i) {
    at::Tensor x = parts_[i].projection(parts[i]);
    if (parts_[i].norm) x = (*parts_[i].norm)(x);
    sum = sum.defined() ? sum + x : x;
  }
  return sum / static_cast<double>(parts_.size());
}

StateJoin::StateJoin(const policy::JoinedStates& joined, Loader& loader)
    : token_norm_(joined.token_norm, loader),
      state_norm_(joined.state_norm, loader),
      projection_(joined.projection, loader) {}

at::Tensor StateJoin::operator()(const at::Tensor& x, const at::Tensor& states) const {
  if (!states.defined() || states.sizes() != x.sizes())
    throw std::logic_error("a module for multi-token prediction has " + std::to_string(x.size(0)) +
                           " tokens, and not as many states of its model beside them");
  return projection_(at::cat({token_norm_(x), state_norm_(states)}, 1));
}

Input::Input(const policy::Stack& stack, Loader& loader)
    : scale_(stack.input.scale),
      token_types_(stack.input.token_types),
      position_offset_(stack.input.position_offset),
      position_last_(stack.input.position_after_norm),
      norm_last_(stack.input.norm_projected),
      project_tokens_(stack.input.project_tokens),
      trigram_(stack.input.trigram),
      hidden_(stack.hidden),
      sines_of_cells_(stack.input.grid && !stack.input.grid->rows) {
  const policy::Input& input = stack.input;
  if (input.backbone) backbone_.emplace(*input.backbone, loader);
  if (input.pixels) pixels_.emplace(*input.pixels, loader);
  if (input.grid && input.grid->rows) {
    grid_rows_.emplace(*input.grid->rows, loader);
    grid_columns_.emplace(*input.grid->columns, loader);
  }
  if (input.queries) queries_.emplace(*input.queries, loader);
  if (input.vectors) vectors_.emplace(*input.vectors, loader);
  if (input.convolutions) convolutions_.emplace(*input.convolutions, loader);
  if (input.positional_convolution) positional_convolution_.emplace(*input.positional_convolution, loader);
  sinusoid_width_ = position_last_ || project_tokens_ || !input.token ? stack.hidden : input.token->shape[1];
  frequencies_ = frequencies_of(input.position, sinusoid_width_);
  if (frequencies_.defined()) frequencies_ = frequencies_.to(loader.device());
  if (!input.clusters.empty())
    clusters_.emplace(input, loader);
  else if (input.token)
    token_.emplace(*input.token, loader);
  if (input.positions) position_.emplace(*input.positions, loader);
  if (input.patch_grid && input.patch_grid->positions) patch_position_.emplace(*input.patch_grid->positions, loader);
  if (input.axial) {
    axial_rows_.emplace(input.axial->rows, loader);
    axial_columns_.emplace(input.axial->columns, loader);
    axial_width_ = input.axial->columns.shape[0];
  }
  if (input.features)
    features_.emplace(*input.features, input.positions.value(),
                      loader);  // in the order in which a forward pass uses the tables
  if (input.entities) entities_.emplace(*input.entities, loader);
  types_ = types_of(input.tables, loader);
  if (input.streams) streams_ = loader.load(*input.streams).to(at::kFloat).roll(1, 0);  // row i - 1 is that of stream i
  if (input.targets) target_ = loader.load(input.targets->state).to(at::kFloat);
  if (input.projection) {
    const bool images = input.reads_patches();
    if (input.reads_images()) patch_ = {input.projection->weight.shape[2], input.projection->weight.shape[3]};
    (images ? patch_projection_ : projection_).emplace(*input.projection, loader);
  }
  std::vector<at::Tensor> extra;
  for (const auto& token : {input.class_token, input.distillation_token})
    if (token) extra.push_back(loader.load(*token).to(at::kFloat).reshape({1, 1, -1}));
  if (!extra.empty()) extra_tokens_ = at::cat(extra, 1);
  if (input.mask_token) mask_token_ = loader.load(*input.mask_token).to(at::kFloat).reshape({1, 1, -1});
  if (input.norm) norm_.emplace(*input.norm, loader);
  if (input.joined_states) state_join_.emplace(*input.joined_states, loader);
}

/// [images, channels, height, width] -> [images x (extra tokens + patches), hidden]: a convolution whose stride is its
/// kernel is a linear map. `masked` [images, patches] may be undefined.
at::Tensor Input::patches(const at::Tensor& pixels, const at::Tensor& masked) const {
  const auto [high, wide] = patch_;
  const int64_t images = pixels.size(0), channels = pixels.size(1), down = pixels.size(2) / high,
                across = pixels.size(3) / wide;
  const at::Tensor cut = pixels.narrow(2, 0, down * high)
                             .narrow(3, 0, across * wide)
                             .reshape({images, channels, down, high, across, wide})
                             .permute({0, 2, 4, 1, 3, 5});
  at::Tensor x = (*patch_projection_)(cut.reshape({images * down * across, channels * high * wide}))
                     .reshape({images, down * across, -1});
  if (masked.defined() && mask_token_.defined()) x = at::where(masked.unsqueeze(2), mask_token_, x);
  if (extra_tokens_.defined()) x = at::cat({extra_tokens_.expand({images, extra_tokens_.size(1), x.size(2)}), x}, 1);
  return x.flatten(0, 1);
}

/// Returns this rank's summand of the positions of patches [patches, hidden] F32.
at::Tensor Input::resampled_positions(const PatchRows& patches) const {
  const at::Tensor rows = patch_position_->partial(patches.table_rows.flatten()).unflatten(0, patches.shares.sizes());
  return (rows * patches.shares.unsqueeze(2)).sum(1);
}

/// Returns the frames of all sequences one after another: [frames, channels].
at::Tensor Input::frames(const Batch& batch) const {
  std::vector<at::Tensor> all;
  size_t sequence = 0;
  for (const Audio& audio : batch.audio) {
    const at::Tensor made = (*convolutions_)(audio.values);
    for (int64_t row = 0; row < made.size(0); ++row)
      all.push_back(made[row].narrow(0, 0, batch.sequences.spans[sequence++].tokens));
  }
  return at::cat(all);
}

/// Rows are padded again, because the convolution reaches over their ends. Frames of padding are zero, as transformers
/// has them.
at::Tensor Input::with_positional_convolution(const at::Tensor& x, const Batch& batch) const {
  std::vector<at::Tensor> all;
  size_t sequence = 0;
  for (const Audio& audio : batch.audio) {
    const int64_t rows = audio.values.size(0);
    at::Tensor padded = at::zeros({rows, audio.frames, x.size(1)}, x.options());
    for (int64_t row = 0; row < rows; ++row) {
      const ops::SequenceSpan& span = batch.sequences.spans[sequence + static_cast<size_t>(row)];
      padded[row].narrow(0, 0, span.keys).copy_(x.narrow(0, span.first, span.keys));
    }
    const at::Tensor made = (*positional_convolution_)(padded);
    for (int64_t row = 0; row < rows; ++row)
      all.push_back(made[row].narrow(0, 0, batch.sequences.spans[sequence++].tokens));
  }
  return at::cat(all);
}

/// Returns the projected cells of all images that are no padding, one after another: [cells, hidden].
at::Tensor Input::cells(const Batch& batch) const {
  std::vector<at::Tensor> all;
  Capture* capture = batch.capture && batch.capture->feature_maps ? batch.capture : nullptr;
  for (const Pictures& pictures : batch.pictures) {
    std::vector<std::vector<at::Tensor>> levels;
    for (int64_t image = 0; image < pictures.pixels.size(0); ++image) {
      std::vector<at::Tensor> maps = (*backbone_)(pictures.pixels.narrow(0, image, 1));
      const at::Tensor last = maps.back()[0];  // [channels, rows, columns]
      const at::Tensor states = (*projection_)(last.flatten(1).t().contiguous());
      const at::Tensor own = pictures.cells[image].flatten().nonzero().squeeze(1);
      all.push_back(at::index_select(states, 0, own));
      if (!capture) continue;
      maps.back() = states.t().reshape({1, hidden_, last.size(1), last.size(2)});
      levels.resize(maps.size());
      for (size_t level = 0; level < maps.size(); ++level) levels[level].push_back(maps[level]);
    }
    if (!capture) continue;
    capture->maps.resize(levels.size());
    for (size_t level = 0; level < levels.size(); ++level) capture->maps[level].push_back(at::cat(levels[level]));
  }
  return at::cat(all);
}

at::Tensor Input::added_positions(const Batch& batch, comm::Communicator& comm) const {
  at::Tensor all;
  if (queries_) {
    all = queries_->partial(batch.positions);
  } else if (grid_rows_) {
    std::vector<at::Tensor> rows, columns;
    for (const Pictures& pictures : batch.pictures) {
      const at::Tensor places = pictures.cells.nonzero();  // image, row, column
      rows.push_back(places.select(1, 1));
      columns.push_back(places.select(1, 2));
    }
    const at::Tensor down = grid_rows_->partial(at::cat(rows)), across = grid_columns_->partial(at::cat(columns));
    all = at::cat({across, down}, 1);
  } else if (sines_of_cells_) {
    std::vector<at::Tensor> visible;
    for (const Pictures& pictures : batch.pictures) {
      const at::Tensor own = pictures.cells.flatten().nonzero().squeeze(1);
      visible.push_back(at::index_select(sine_positions(pictures.cells, hidden_).flatten(0, 2), 0, own));
    }
    return at::cat(visible);
  }
  if (all.defined() && comm.size() > 1) comm.all_reduce(all = all.contiguous());
  return all;
}

namespace {

/// Puts the rows of the next token, the token and the previous one beside each other: [tokens, width] -> [tokens, 3 x
/// width], zero beyond the ends of a sequence.
at::Tensor trigrams(const at::Tensor& x, const Batch& batch) {
  at::Tensor next = at::zeros_like(x), previous = at::zeros_like(x);
  for (const ops::SequenceSpan& span : batch.sequences.spans) {
    const int64_t pairs = span.tokens - 1;
    next.narrow(0, span.first, pairs).copy_(x.narrow(0, span.first + 1, pairs));
    previous.narrow(0, span.first + 1, pairs).copy_(x.narrow(0, span.first, pairs));
  }
  return at::cat({next, x, previous}, 1);
}

}  // namespace

at::Tensor Input::looked_up(const at::Tensor& positions) const {
  if (axial_rows_) {
    const at::Tensor rows = axial_rows_->partial(positions.div(axial_width_, "floor"));
    return at::cat({rows, axial_columns_->partial(positions.remainder(axial_width_))}, 1);
  }
  return position_->partial(position_offset_ == 0 ? positions : positions + position_offset_);
}

/// Makes the rows of all streams from those of the tokens and, behind them, of the positions of the next tokens.
at::Tensor Input::with_streams(const at::Tensor& x, int64_t streams) const {
  const int64_t tokens = x.size(0) / 2;
  std::vector<at::Tensor> rows{x.narrow(0, 0, tokens)};
  for (int64_t stream = 0; stream < streams; ++stream) rows.push_back(x.narrow(0, tokens, tokens) + streams_[stream]);
  return at::cat(rows);
}

at::Tensor Input::sinusoids(const at::Tensor& positions) const {
  const at::Tensor angles = (positions + position_offset_).to(frequencies_.scalar_type()).unsqueeze(1) * frequencies_;
  const int64_t sines = angles.size(1), rest = sinusoid_width_ - sines;
  at::Tensor x = at::cat({at::sin(angles), at::cos(angles.narrow(1, 0, std::min(sines, rest)))}, 1).to(at::kFloat);
  return x.size(1) == sinusoid_width_ ? x : at::constant_pad_nd(x, {0, sinusoid_width_ - x.size(1)});
}

at::Tensor Input::operator()(const Batch& batch, comm::Communicator& comm) const {
  if (backbone_) return cells(batch);
  if (pixels_) return (*pixels_)(batch.pictures, comm);
  if (queries_) return at::zeros({batch.positions.size(0), hidden_}, batch.positions.options().dtype(at::kFloat));
  if (vectors_) return (*vectors_)(batch.vectors);
  at::Tensor x;
  if (clusters_) {
    x = clusters_->partial(batch.tokens);
    if (scale_ != 1) x.mul_(scale_);
  }
  if (token_) {
    if (const auto types = batch.types.find(token_types_); types != batch.types.end()) {
      // One look-up for both: gathered weights are used once, in the order of the gather schedule.
      const std::vector<at::Tensor> both =
          token_->partial(at::cat({batch.tokens, types->second.clamp_min(0)})).chunk(2);
      x = both[0] + both[1] * (types->second >= 0).unsqueeze(1);
    } else {
      x = token_->partial(target_.defined() ? batch.tokens.clamp_min(0) : batch.tokens);
    }
    if (scale_ != 1) x.mul_(scale_);
    if (trigram_) x = trigrams(x, batch);
    // The projection is linear: it takes this rank's rows, and the sum over ranks adds what it makes of them.
    if (project_tokens_ && projection_) x = projection_->product(x);
  }
  const bool together = axial_rows_ || (position_ && !position_last_);  // one reduction for both tables
  if (together) {
    // the streams that predict the next token stand at its position
    const bool ahead = batch.streams > 0;
    const at::Tensor positions = looked_up(ahead ? at::cat({batch.positions, batch.positions + 1}) : batch.positions);
    if (ahead) x = at::cat({x, at::zeros_like(x)});
    x = x.defined() ? x.add_(positions) : positions;
  }
  if (patch_position_) x = resampled_positions(batch.patches);
  const FeatureRows& features = batch.features;
  if (features.values.defined())
    x.index_copy_(0, features.rows,
                  features_->partial(features, position_offset_));  // tables of positions in the same reduction
  const EntityRows& entities = batch.entities;
  if (entities.ids.defined()) x.index_copy_(0, entities.rows, entities_->partial(entities));
  if (comm.size() > 1 && x.defined()) {
    if (!token_ || !together) x = x.contiguous();
    comm.all_reduce(x);
  }
  if (convolutions_) {  // which every rank has in full
    at::Tensor heard = frames(batch);
    if (scale_ != 1) heard.mul_(scale_);
    x = x.defined() ? x.add_(heard) : heard;
  }
  if (target_.defined()) x = at::where((batch.tokens < 0).unsqueeze(1), target_, x);
  if (batch.streams > 0) x = with_streams(x, batch.streams);
  if (project_tokens_ && projection_ && projection_->bias().defined()) x = x + projection_->bias();
  if (frequencies_.defined() && !position_last_) x = x.add_(sinusoids(batch.positions));
  if (patch_projection_) {
    const at::Tensor seen = batch.patches.values.defined() ? (*patch_projection_)(batch.patches.values)
                                                           : patches(batch.pixels, batch.masked_patches);
    x = x.defined() ? x + seen : seen;
  }
  const at::Tensor places = features.values.defined() ? at::index_select(x, 0, features.rows) : at::Tensor();
  const at::Tensor embedded = entities.ids.defined() ? at::index_select(x, 0, entities.rows) : at::Tensor();
  x = with_types(x, types_, batch.types);
  if (places.defined()) x = x.index_copy(0, features.rows, places + features_->projected(features));
  if (norm_ && !norm_last_) x = (*norm_)(x);
  if (embedded.defined()) x = x.index_copy(0, entities.rows, entities_->normed(embedded, entities));
  if (batch.capture && batch.capture->features) batch.capture->audio_features = x;
  if (projection_ && !project_tokens_) x = (*projection_)(x);
  if (norm_ && norm_last_) x = (*norm_)(x);
  if (state_join_) x = (*state_join_)(x, batch.states);
  if (positional_convolution_) x = with_positional_convolution(x, batch);
  if (!position_last_) return x;
  if (frequencies_.defined()) return x + sinusoids(batch.positions);
  at::Tensor positions = looked_up(batch.positions).contiguous();
  if (comm.size() > 1) comm.all_reduce(positions);
  return positions.add_(x);
}

}  // namespace pm::layers
