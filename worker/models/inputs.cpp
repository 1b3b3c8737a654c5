// SPDX-License-Identifier: Apache-2.0
#include "worker/models/inputs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "worker/models/features.h"
#include "worker/models/heads/heads.h"
#include "worker/models/model.h"
#include "worker/models/requests/arrays.h"
#include "worker/models/requests/entities.h"
#include "worker/models/requests/image_places.h"
#include "worker/models/requests/patch_grids.h"
#include "worker/models/requests/pictures.h"
#include "worker/models/requests/request_memory.h"
#include "worker/models/requests/request_targets.h"
#include "worker/models/requests/request_tensors.h"
#include "worker/models/requests/rows_of_states.h"
#include "worker/models/requests/two_streams.h"
#include "worker/models/separators.h"

namespace pm::models {

namespace {

bool crosses(const policy::Stack& stack) { return !stack.layers.empty() && stack.layers[0].cross.has_value(); }

/// Reads the inputs of one model from the tensors of a request.
class Reader {
 public:
  Reader(const policy::Model& model, const Arrays& arrays) : model_(model), tensors_(model, arrays) {}

  StackInput source() {
    const policy::Stack* encoder = Model::source_stack(model_);
    if (!encoder || !encoder->input.reads_media())
      throw std::logic_error(model_.architecture + " has no encoder of images or audio");
    Inputs inputs;
    read(*encoder, inputs);
    tensors_.refuse_unknown();
    StackInput& made = inputs.stack_inputs.at(encoder->name);
    if (made.rows != 1)
      refuse("the encoder's input has " + std::to_string(made.rows) + " rows; generation takes one at a time");
    return std::move(made);
  }

  Inputs run() {
    Inputs inputs;
    for (const policy::Stack& stack : model_.stacks) read(stack, inputs);
    read_head_inputs(model_, tensors_, inputs);
    tensors_.refuse_unknown();
    inputs.choices = tensors_.choices();
    find_ends(inputs);
    if (inputs.stack_inputs.empty()) refuse(model_.architecture + " got no inputs; it takes " + tensors_.listed());
    return inputs;
  }

 private:
  void read(const policy::Stack& stack, Inputs& inputs) {
    if (!stack.joins.empty())
      join(stack, inputs);
    else if (stack.input.vectors)
      vectors(stack, inputs);
    else if (stack.input.reads_images())
      images(stack, inputs);
    else if (stack.input.patch_grid)
      patches(stack, inputs);
    else if (stack.input.convolutions)
      audio(stack, inputs);
    else if (stack.input.backbone || stack.input.pixels)
      pictures(stack, inputs);
    else if (stack.input.queries)
      queries(stack, inputs);
    else
      tokens(stack, inputs);
    if (const auto made = inputs.stack_inputs.find(stack.name);
        stack.input.latents && made != inputs.stack_inputs.end())
      inputs.rows_of_states[stack.name] = latent_rows(stack, made->second);
  }

  /// Hugging Face's shift_tokens_right: the decoder's start token, then all tokens but the last. With shift_tokens
  /// the start is the last token of the row; padding stands on the right.
  at::Tensor shifted(const at::Tensor& ids) const {
    if (model_.shift_tokens)
      return at::cat({at::gather(ids, 1, mask_.sum(1, /*keepdim=*/true) - 1), ids.narrow(1, 0, ids.size(1) - 1)}, 1);
    if (model_.decoder_start < 0)
      refuse(
          "decoder_input_ids are missing, and config.json has no decoder_start_token_id to make them from input_ids");
    return at::cat({at::full({ids.size(0), 1}, model_.decoder_start, at::kLong), ids.narrow(1, 0, ids.size(1) - 1)}, 1);
  }

  void tokens(const policy::Stack& stack, Inputs& inputs) {
    const bool answers = crosses(stack);
    const std::string before = answers ? "decoder_" : stack.input.prefix, ids_name = before + "input_ids",
                      mask_name = before + "attention_mask";
    at::Tensor ids = tensors_.ints(ids_name, {}), mask;
    // a request may have a question alone, for which the passages are found that the other stacks read
    const bool question =
        answers && !inputs.stack_inputs.empty() && !inputs.stack_inputs.contains(stack.layers[0].cross->source);
    if (question && !ids.defined()) return;
    if (!ids.defined() && answers && ids_.defined()) ids = shifted(ids_);
    if (ids.defined())
      mask = tensors_.ints(mask_name, ids);
    else
      tensors_.find(mask_name);
    if (!ids.defined()) {
      if (model_.stacks.size() == 1 || answers)
        refuse("the inputs have no tensor \"" + (source_rows_ > 0 ? ids_name : "input_ids") + "\"");
      return;
    }
    if (!mask.defined())
      mask = at::ones_like(ids);  // shifted ids too: Hugging Face's decoder reads the shifted padding
    check_range(ids_name, ids, 0, stack.vocab, "ids");
    const int64_t rows = source_rows_ > 0 ? source_rows_ : ids_.defined() ? ids_.size(0) : 0;
    if (answers && ids.size(0) != rows) {
      refuse("decoder_input_ids has " + std::to_string(ids.size(0)) + " rows, " +
             (source_rows_ > 0 ? "the encoder's input" : "input_ids") + " has " + std::to_string(rows));
    }
    if (!answers) ids_ = ids, mask_ = mask;
    StackInput& stack_input = inputs.stack_inputs[stack.name];
    const RequestFeatures features = read_features(stack, ids, tensors_);
    const RequestEntities entities = read_entities(model_, stack, ids, tensors_);
    const RequestTargets targets = read_targets(model_, stack, ids, mask, tensors_);
    const at::Tensor others = features.values.defined()     ? features.mask  // behind the tokens
                              : targets.positions.defined() ? targets.mask()
                                                            : entities.mask;
    const auto beside = [&](const at::Tensor& values, const at::Tensor& more) {
      return others.defined() ? at::cat({values, more}, 1) : values;
    };
    const bool reads_padding = policy::reads_padding(stack);
    lay_out(mask_name, beside(reads_padding ? at::ones_like(mask) : mask, others), stack_input);
    if (reads_padding) hide_padding(model_, mask_name, mask, stack_input);
    if (policy::resizes_rows(stack))
      inputs.rows_of_states[stack.name] = pooled_rows(model_, mask_name, stack, stack_input);
    stack_input.tokens = ids.size(1);
    stack_input.batch.features = lay_out_features(features, ids.size(1), stack_input.places, stack_input.length);
    if (entities.ids.defined()) lay_out_entities(entities, ids.size(1), stack_input);
    // ids of what stands behind the tokens are never read
    const at::Tensor none = others.defined() ? at::zeros_like(others) : at::Tensor();
    const auto unpadded = [&](const at::Tensor& values) {
      return at::index_select(beside(values, none).flatten(), 0, stack_input.places);
    };
    stack_input.batch.tokens = unpadded(ids);
    place_images(stack, inputs, stack_input);
    if (stack.input.images && stack.input.images->bidirectional)
      find_bidirectional_tokens(tensors_.ints("token_type_ids", ids), stack_input);
    if (targets.positions.defined()) stack_input.batch.tokens = beside_targets(ids, targets.mask() - 2, stack_input);
    stack_input.batch.memory = read_memory(stack, ids.size(0), tensors_);
    if (reads_columns(stack)) stack_input.batch.columns = sequence_columns(model_, stack, ids, stack_input, tensors_);
    lay_out_targets(targets, stack.layers[0].attention.mask == policy::Mask::Causal, stack_input);
    if (!answers && masks_question(model_))
      inputs.head_inputs["question_lengths"] = question_lengths(model_, ids, tensors_);
    const at::Tensor position_ids = answers ? at::Tensor() : tensors_.ints("position_ids", ids);
    positions(stack, position_ids, ids, unpadded, stack_input);
    axes(stack, ids, position_ids.defined(), inputs, stack_input);
    if (const std::string& name = stack.input.token_types; !name.empty()) {
      const at::Tensor given = tensors_.ints(name, ids);
      if (given.defined()) check_range(name, given, 0, stack.vocab, "ids");
      stack_input.batch.types[name] = given.defined() ? unpadded(given) : at::full_like(stack_input.batch.tokens, -1);
    }
    if (const std::string name = segments_input(stack); !name.empty()) {  // without any, all tokens are in one segment
      const at::Tensor given = tensors_.ints(name, ids);
      at::Tensor& own = stack_input.batch.types[name];
      own = given.defined() ? unpadded(given) : at::zeros_like(stack_input.batch.tokens);
      if (given.defined() && stack_input.has_targets)  // a target is in the segment of its token
        own = beside_targets(given, at::gather(given, 1, targets.positions), stack_input);
    }
    for (const policy::IndexTable& table : stack.input.tables) {
      at::Tensor given = numbers(stack.input, table, ids);
      const at::Tensor question = inputs.head_input("question_lengths");
      if (!given.defined() && question.defined() && table.input == "token_type_ids")  // 0 for the question, else 1
        given = (at::arange(ids.size(1), at::kLong).unsqueeze(0) >= question.unsqueeze(1)).to(at::kLong);
      at::Tensor& rows = stack_input.batch.types[table.key()];
      rows = given.defined() ? unpadded(given) : at::full_like(stack_input.batch.tokens, table.row_if_absent());
      const std::string what =
          table.column < 0 ? "they"
                           : "numbers of column " + std::to_string(table.column) +
                                 (table.minus_column < 0 ? "" : " less column " + std::to_string(table.minus_column));
      if (given.defined()) check_range(table.input, rows, 0, table.table.shape[0], what);
    }
  }

  /// Finds where the tokens of images stand along the axes of rotary embedding, unless a request says their positions.
  void axes(const policy::Stack& stack, const at::Tensor& ids, bool given, const Inputs& inputs,
            StackInput& stack_input) {
    if (!stack.input.images || policy::rotary_axes(stack) == 0) return;
    const at::Tensor types = tensors_.ints("mm_token_type_ids", ids);
    const auto images = inputs.stack_inputs.find(stack.input.images->stack);
    if (!given && images != inputs.stack_inputs.end()) find_axes(stack, types, images->second, stack_input);
  }

  /// Returns several indices per token [rows, length, columns], as many as the tables of `input` look up. Undefined
  /// when they are absent.
  at::Tensor columns(const policy::Input& input, const std::string& name, const at::Tensor& ids) {
    const Array* array = tensors_.find(name);
    if (!array) return {};
    if (!std::holds_alternative<std::vector<int64_t>>(array->values))
      refuse(name + " has fractional values, expected integers");
    int64_t count = 0;
    for (const policy::IndexTable& table : input.tables)
      if (table.input == name) count = std::max({count, table.column + 1, table.minus_column + 1});
    const at::Tensor tensor = tensor_of(*array);
    if (tensor.dim() != 3 || tensor.size(0) != ids.size(0) || tensor.size(1) != ids.size(1) ||
        tensor.size(2) != count) {
      refuse(name + " has the shape " + c10::str(tensor.sizes()) + ", expected that of the ids and " +
             std::to_string(count) + " numbers per token, [" + std::to_string(ids.size(0)) + ", " +
             std::to_string(ids.size(1)) + ", " + std::to_string(count) + "]");
    }
    return tensor;
  }

  /// Returns the indices that a table looks up [rows, length]. Undefined when they are absent.
  at::Tensor numbers(const policy::Input& input, const policy::IndexTable& table, const at::Tensor& ids) {
    if (table.input.empty()) return {};
    if (table.column < 0) return tensors_.ints(table.input, ids);
    const at::Tensor all = columns(input, table.input, ids);
    if (!all.defined()) return {};
    return table.minus_column < 0 ? all.select(2, table.column)
                                  : all.select(2, table.column) - all.select(2, table.minus_column);
  }

  /// Returns the positions within each token's table cell [rows, length], clamped to the last row of the table. As in
  /// transformers, padding counts where it is given a cell.
  at::Tensor within_cells(const policy::Stack& stack, const at::Tensor& ids) {
    at::Tensor types = columns(stack.input, "token_type_ids", ids), positions = at::empty(ids.sizes(), at::kLong);
    if (!types.defined()) types = at::zeros({ids.size(0), ids.size(1), 3}, at::kLong);
    const auto type = types.accessor<int64_t, 3>();
    auto position = positions.accessor<int64_t, 2>();
    for (int64_t row = 0; row < ids.size(0); ++row) {
      std::map<std::pair<int64_t, int64_t>, int64_t> first;  // of each cell, by its column and row
      for (int64_t place = 0; place < ids.size(1); ++place) {
        const auto cell = first.emplace(std::pair{type[row][place][1], type[row][place][2]}, place).first;
        position[row][place] = std::min(place - cell->second, stack.positions - 1);
      }
    }
    return positions;
  }

  template <typename Unpadded>
  void positions(const policy::Stack& stack, const at::Tensor& given, const at::Tensor& ids, const Unpadded& unpadded,
                 StackInput& stack_input) {
    const policy::Input& input = stack.input;
    at::Tensor& positions = stack_input.batch.positions;
    if (given.defined()) {
      positions = unpadded(given);
      if (input.position_ids_are_rows) positions = positions - input.position_offset;
    } else if (input.position_reset_per_cell) {
      positions = unpadded(within_cells(stack, ids));
    } else if (input.position_skips_padding) {
      std::vector<at::Tensor> counts;
      for (const at::Tensor& columns : stack_input.columns) {  // entities behind the tokens have none
        const int64_t all = columns.numel(), count = (columns < stack_input.tokens).sum().item<int64_t>();
        counts.push_back(at::arange(count, at::kLong));
        if (count < all) counts.push_back(at::zeros({all - count}, at::kLong));
      }
      positions = at::cat(counts);
    } else {
      positions = unpadded(at::arange(ids.size(1), at::kLong).expand(ids.sizes()));
    }
    // streams read the row behind that of the last token
    const int64_t rows = input.positions
                             ? input.positions->shape[0] - input.position_offset - (input.stream_count() > 0 ? 1 : 0)
                             : stack.positions;
    if (rows > 0)
      check_range("position_ids", positions, input.position_ids_are_rows ? -input.position_offset : 0, rows,
                  "positions of this model");
    stack_input.batch.long_rows = long_rows(stack, stack_input.batch);
  }

  /// Returns which tokens belong to sequences beyond the original length of LongRoPE; undefined where there is none.
  static at::Tensor long_rows(const policy::Stack& stack, const layers::Batch& batch) {
    const int64_t most = policy::short_rope_tokens(stack);
    if (most == 0) return {};
    at::Tensor rows = at::zeros_like(batch.positions, at::kBool);
    for (const ops::SequenceSpan& span : batch.sequences.spans) {
      const at::Tensor own = batch.positions.narrow(0, span.first, span.tokens);
      rows.narrow(0, span.first, span.tokens).fill_(own.max().item<int64_t>() >= most);
    }
    return rows;
  }

  bool pools(policy::Pool pool) const {
    return std::any_of(model_.heads.begin(), model_.heads.end(),
                       [&](const policy::Head& head) { return head.pool() == pool; }) ||
           std::any_of(model_.stacks.begin(), model_.stacks.end(), [&](const policy::Stack& stack) {
             return stack.output.pooler && stack.output.pooler->pool == pool;
           });
  }

  /// Finds the token that pooled heads read. "eot": the first end token; older CLIP checkpoints have eos_token_id 2
  /// and mean the token with the largest id. "last_eos": the column of the last end token, which must exist; where a
  /// decoder is pooled, the same column of the decoder's input. "last_but_one": of the tokens that are not padding.
  void find_ends(Inputs& inputs) {
    const bool last = pools(policy::Pool::LastEos);
    if (ids_.defined() && pools(policy::Pool::LastButOne)) {
      for (int64_t row = 0; row < ids_.size(0); ++row) {
        const auto count = mask_[row].count_nonzero().item<int64_t>();
        if (count < 2)
          refuse("row " + std::to_string(row) + " of input_ids has one token; " + model_.architecture +
                 " reads the last but one");
        inputs.ends.push_back(count - 2);
      }
      return;
    }
    if (!ids_.defined() || (!last && !pools(policy::Pool::Eot))) return;
    const int64_t eos = model_.eos.empty() ? -1 : model_.eos[0];
    for (int64_t row = 0; row < ids_.size(0); ++row) {
      const at::Tensor columns = mask_[row].nonzero().squeeze(1), ids = at::index_select(ids_[row], 0, columns);
      int64_t end = 0;
      if (!last && (eos < 0 || eos == 2)) {
        end = ids.argmax().item<int64_t>();
      } else {
        const at::Tensor ends = (ids == eos).nonzero().squeeze(1);
        if (last && ends.numel() == 0)
          refuse("row " + std::to_string(row) + " of input_ids has no end token (id " + std::to_string(eos) +
                 "), whose state this model classifies");
        if (ends.numel() > 0) end = ends[last ? -1 : 0].item<int64_t>();
      }
      inputs.ends.push_back(place_of_end(columns[end].item<int64_t>(), end, row, inputs));
    }
  }

  /// Returns the token of the pooled stack in `column` of the row, or `end` where no decoder is pooled.
  int64_t place_of_end(int64_t column, int64_t end, int64_t row, const Inputs& inputs) const {
    for (const policy::Stack& stack : model_.stacks) {
      const auto answers = inputs.stack_inputs.find(stack.name);
      if (!crosses(stack) || answers == inputs.stack_inputs.end()) continue;
      const at::Tensor place = (answers->second.columns[static_cast<size_t>(row)] == column).nonzero().squeeze(1);
      if (place.numel() == 0) {
        refuse("row " + std::to_string(row) + " of decoder_input_ids has no token in column " + std::to_string(column) +
               ", where input_ids has its end token");
      }
      return place[0].item<int64_t>();
    }
    return end;
  }

  void images(const policy::Stack& stack, Inputs& inputs) {
    const Array* array = tensors_.find("pixel_values");
    if (!array) {
      if (model_.stacks.size() == 1 || model_.kind == policy::ModelKind::EncoderDecoder)
        refuse("the inputs have no tensor \"pixel_values\"");
      return;
    }
    if (!std::holds_alternative<std::vector<float>>(array->values)) refuse("pixel_values has integers, expected fp32");
    const at::Tensor pixels = tensor_of(*array);
    const int64_t channels = stack.input.projection->weight.shape[1];
    const auto [height, width] = stack.input.image;
    if (pixels.dim() != 4 || pixels.size(0) == 0 || pixels.size(1) != channels || pixels.size(2) != height ||
        pixels.size(3) != width) {
      refuse("pixel_values has the shape " + c10::str(pixels.sizes()) + ", expected [images, " +
             std::to_string(channels) + ", " + std::to_string(height) + ", " + std::to_string(width) + "]");
    }
    StackInput& stack_input = inputs.stack_inputs[stack.name];
    lay_out("pixel_values", at::ones({pixels.size(0), stack.positions}, at::kLong), stack_input);
    stack_input.tokens = stack.positions;
    stack_input.batch.pixels = pixels;
    stack_input.batch.masked_patches =
        read_masked_patches(model_, stack, pixels.size(0), stack.positions - stack.input.extra_tokens(), tensors_);
    stack_input.batch.positions = at::arange(stack.positions, at::kLong).repeat({pixels.size(0)});
    source_rows_ = pixels.size(0);
  }

  void patches(const policy::Stack& stack, Inputs& inputs) {
    if (tensors_.find("pixel_values")) inputs.stack_inputs.emplace(stack.name, read_patches(stack, tensors_));
  }

  void pictures(const policy::Stack& stack, Inputs& inputs) {
    StackInput& stack_input = inputs.stack_inputs[stack.name];
    const auto& pixels = stack.input.pixels;
    stack_input.batch.pictures.push_back(pixels ? read_pixels(model_, *pixels, tensors_)
                                                : read_pictures(model_, stack.input, tensors_));
    const at::Tensor& cells = stack_input.batch.pictures[0].cells;
    lay_out(pixels ? pixels->input : stack.input.backbone->mask, cells.flatten(1).to(at::kLong), stack_input);
    stack_input.tokens = stack_input.length;
    pictured_ = cells.size(0);
  }

  /// Lays out the learned queries of each image.
  void queries(const policy::Stack& stack, Inputs& inputs) {
    StackInput& stack_input = inputs.stack_inputs[stack.name];
    const int64_t count = stack.input.queries->shape[0];
    lay_out("the queries", at::ones({pictured_, count}, at::kLong), stack_input);
    stack_input.tokens = count;
    stack_input.batch.positions = at::arange(count, at::kLong).repeat({pictured_});
  }

  void vectors(const policy::Stack& stack, Inputs& inputs) {
    const policy::Vectors& described = *stack.input.vectors;
    const RequestVectors found = read_vectors(described, ids_.defined() ? ids_.size(0) : 0, tensors_);
    StackInput& stack_input = inputs.stack_inputs[stack.name];
    lay_out(described.mask, found.mask, stack_input);
    stack_input.tokens = stack_input.length;
    for (const at::Tensor& part : found.parts)
      stack_input.batch.vectors.push_back(at::index_select(part.flatten(0, 1), 0, stack_input.places));
    stack_input.batch.positions = at::zeros_like(stack_input.places);  // vectors have none
  }

  /// The rows of a stack that joins two are those of the first here; Model::forward adds those of the second.
  void join(const policy::Stack& stack, Inputs& inputs) const {
    for (const std::string& name : stack.joins)
      if (!inputs.stack_inputs.contains(name))
        refuse(model_.architecture + " got no inputs of the stack \"" + name +
               "\", which it joins to another; it takes " + tensors_.listed());
    inputs.stack_inputs[stack.name] = joined_input(inputs.stack_inputs.at(stack.joins[0]));
  }

  /// Returns the number of samples (frames of filter banks) of each row that are no padding. As transformers' feature
  /// extractors do, padding stands behind. Rows of one exact length count whole, whatever their mask says.
  std::vector<int64_t> lengths(const policy::Convolutions& convolutions, const at::Tensor& values) {
    const std::string& name = convolutions.input;
    const at::Tensor mask = tensors_.mask("attention_mask", {values.size(0), values.size(1)});
    std::vector<int64_t> counts(static_cast<size_t>(values.size(0)), values.size(1));
    if (convolutions.exact_length > 0) {
      if (values.size(1) != convolutions.exact_length)
        refuse("the rows of " + name + " have " + std::to_string(values.size(1)) + " frames, " + model_.architecture +
               " reads exactly " + std::to_string(convolutions.exact_length) + "; pad or cut the audio");
      return counts;
    }
    for (int64_t row = 0; mask.defined() && row < values.size(0); ++row) {
      const auto count = mask[row].sum().item<int64_t>();
      if (count == 0) refuse("row " + std::to_string(row) + " of attention_mask is all zero");
      if (!mask[row].narrow(0, 0, count).all().item<bool>())
        refuse("row " + std::to_string(row) + " of attention_mask has a 1 behind a 0; padding of " + name +
               " has to stand behind the audio");
      counts[static_cast<size_t>(row)] = count;
    }
    return counts;
  }

  void audio(const policy::Stack& stack, Inputs& inputs) {
    const policy::Convolutions& convolutions = *stack.input.convolutions;
    const std::string& name = convolutions.input;
    const Array* array = tensors_.find(name);
    if (!array) refuse("the inputs have no tensor \"" + name + "\"");
    if (!std::holds_alternative<std::vector<float>>(array->values)) refuse(name + " has integers, expected fp32");
    at::Tensor values = tensor_of(*array);
    const bool samples = convolutions.bins == 0;
    const std::string bins = std::to_string(convolutions.bins);
    if (values.dim() != (samples ? 2 : 3) || values.numel() == 0 ||
        (!samples && values.size(convolutions.bins_first ? 1 : 2) != convolutions.bins))
      refuse(name + " has the shape " + c10::str(values.sizes()) + ", expected " +
             (samples                   ? "[rows, samples]"
              : convolutions.bins_first ? "[rows, " + bins + ", frames]"
                                        : "[rows, frames, " + bins + "]"));
    if (convolutions.bins_first) values = values.transpose(1, 2);
    const std::vector<int64_t> counts = lengths(convolutions, values);
    const int64_t frames = convolutions.frames(values.size(1));
    const bool whole = std::any_of(model_.heads.begin(), model_.heads.end(),
                                   [](const policy::Head& head) { return head.reads_padding(); });
    at::Tensor mask = at::zeros({values.size(0), frames}, at::kLong);
    for (size_t row = 0; row < counts.size(); ++row) {
      const int64_t own = convolutions.frames(counts[row]);
      if (own == 0)
        refuse("row " + std::to_string(row) + " of " + name + " has " + std::to_string(counts[row]) +
               (samples ? " samples; " : " frames; ") + model_.architecture + " needs at least " +
               std::to_string(convolutions.length(1)));
      mask[static_cast<int64_t>(row)].narrow(0, 0, whole ? frames : own).fill_(1);
    }
    StackInput& stack_input = inputs.stack_inputs[stack.name];
    lay_out(name, mask, stack_input);
    std::vector<at::Tensor> positions;
    for (size_t row = 0; row < counts.size(); ++row) {
      ops::SequenceSpan& span = stack_input.batch.sequences.spans[row];
      span.keys = convolutions.frames(counts[row]);
      positions.push_back(at::arange(span.tokens, at::kLong));
    }
    stack_input.tokens = frames;
    stack_input.batch.positions = at::cat(positions);
    stack_input.batch.audio.push_back({values, frames});
    source_rows_ = values.size(0);
  }

  const policy::Model& model_;
  RequestTensors tensors_;
  int64_t source_rows_ = 0;  ///< rows of images or audio
  int64_t pictured_ = 0;     ///< images of a stack with a backbone
  at::Tensor ids_, mask_;    ///< of the encoder
};

}  // namespace

Inputs make_inputs(const policy::Model& model, const Arrays& arrays) {
  check_shapes(arrays);
  return Reader(model, arrays).run();
}

StackInput make_source_input(const policy::Model& model, const Arrays& arrays) {
  check_shapes(arrays);
  return Reader(model, arrays).source();
}

}  // namespace pm::models
