// See inputs.h.
#include "worker/models/inputs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "worker/models/features.h"
#include "worker/models/given.h"

namespace pm::models {

namespace {

bool crosses(const policy::Stack& stack) { return !stack.layers.empty() && stack.layers[0].cross.has_value(); }
bool sees_images(const policy::Stack& stack) { return stack.input.projection && stack.input.projection->weight.shape.size() == 4; }

/// Reads the inputs of one model and remembers which names it knows.
class Reader {
 public:
  Reader(const policy::Model& model, const Arrays& arrays) : model_(model), given_(model, arrays) {}

  Inputs run() {
    Inputs inputs;
    for (const policy::Stack& stack : model_.stacks) {
      if (sees_images(stack)) images(stack, inputs);
      else tokens(stack, inputs);
    }
    for (const policy::Head& head : model_.heads) of_head(head, inputs);
    given_.refuse_unknown();
    inputs.choices = given_.choices();
    find_ends(inputs);
    if (inputs.feeds.empty()) refuse(model_.architecture + " got no inputs; it takes " + given_.listed());
    return inputs;
  }

 private:
  /// Hugging Face's shift_tokens_right: the answer's start, then all but the last. Where the model wraps, the start is the column of the last token,
  /// padding on the right.
  at::Tensor shifted(const at::Tensor& ids) const {
    if (model_.wraps) return at::cat({at::gather(ids, 1, mask_.sum(1, /*keepdim=*/true) - 1), ids.narrow(1, 0, ids.size(1) - 1)}, 1);
    if (model_.decoder_start < 0) refuse("decoder_input_ids are missing, and config.json has no decoder_start_token_id to make them from input_ids");
    return at::cat({at::full({ids.size(0), 1}, model_.decoder_start, at::kLong), ids.narrow(1, 0, ids.size(1) - 1)}, 1);
  }

  void tokens(const policy::Stack& stack, Inputs& inputs) {
    const bool answers = crosses(stack);
    const std::string ids_name = answers ? "decoder_input_ids" : "input_ids", mask_name = answers ? "decoder_attention_mask" : "attention_mask";
    at::Tensor ids = given_.ints(ids_name, {}), mask;
    if (!ids.defined() && answers && ids_.defined()) ids = shifted(ids_);
    if (ids.defined()) mask = given_.ints(mask_name, ids);
    else given_.find(mask_name);
    if (!ids.defined()) {
      if (model_.stacks.size() == 1 || answers) refuse("the inputs have no tensor \"input_ids\"");
      return;
    }
    if (!mask.defined()) mask = at::ones_like(ids);   // also of shifted ids: Hugging Face's decoder reads the padding that was shifted
    in_range(ids_name, ids, 0, stack.vocab, "ids");
    if (answers && ids.size(0) != ids_.size(0)) {
      refuse("decoder_input_ids has " + std::to_string(ids.size(0)) + " rows, input_ids has " + std::to_string(ids_.size(0)));
    }
    if (!answers) ids_ = ids, mask_ = mask;
    Feed& feed = inputs.feeds[stack.name];
    const GivenFeatures features = read_features(stack, ids, given_);
    const auto beside = [&](const at::Tensor& values, const at::Tensor& more) { return features.values.defined() ? at::cat({values, more}, 1) : values; };
    lay_out(mask_name, beside(mask, features.mask), feed);
    feed.tokens = ids.size(1);
    feed.batch.features = lay_out_features(features, ids.size(1), feed.places, feed.length);
    const at::Tensor none = features.values.defined() ? at::zeros_like(features.mask) : at::Tensor();   // what vectors have instead of ids is never read
    const auto kept = [&](const at::Tensor& values) { return at::index_select(beside(values, none).flatten(), 0, feed.places); };
    feed.batch.tokens = kept(ids);
    positions(stack, answers ? at::Tensor() : given_.ints("position_ids", ids), ids, kept, feed);
    for (const policy::IndexTable& table : stack.input.tables) {
      const at::Tensor given = numbers(stack.input, table, ids);
      at::Tensor& rows = feed.batch.types[table.key()];
      rows = given.defined() ? kept(given) : at::full_like(feed.batch.tokens, table.given ? -1 : table.usual);
      const std::string what = table.column < 0 ? "they" : "numbers of column " + std::to_string(table.column) + (table.minus < 0 ? "" : " less column " + std::to_string(table.minus));
      if (given.defined()) in_range(table.input, rows, 0, table.table.shape[0], what);
    }
  }

  /// Several numbers per token [rows, length, columns], as many as the tables of `input` look up. Undefined when they are absent.
  at::Tensor columns(const policy::Input& input, const std::string& name, const at::Tensor& ids) {
    const Array* array = given_.find(name);
    if (!array) return {};
    if (!std::holds_alternative<std::vector<int64_t>>(array->values)) refuse(name + " has fractional values, expected integers");
    int64_t count = 0;
    for (const policy::IndexTable& table : input.tables)
      if (table.input == name) count = std::max({count, table.column + 1, table.minus + 1});
    const at::Tensor tensor = models::tensor_of(*array);
    if (tensor.dim() != 3 || tensor.size(0) != ids.size(0) || tensor.size(1) != ids.size(1) || tensor.size(2) != count) {
      refuse(name + " has the shape " + c10::str(tensor.sizes()) + ", expected that of the ids and " + std::to_string(count) + " numbers per token, [" + std::to_string(ids.size(0)) + ", " +
             std::to_string(ids.size(1)) + ", " + std::to_string(count) + "]");
    }
    return tensor;
  }

  /// The numbers that a table looks up [rows, length]; undefined when they are absent.
  at::Tensor numbers(const policy::Input& input, const policy::IndexTable& table, const at::Tensor& ids) {
    if (table.column < 0) return given_.ints(table.input, ids);
    const at::Tensor all = columns(input, table.input, ids);
    if (!all.defined()) return {};
    return table.minus < 0 ? all.select(2, table.column) : all.select(2, table.column) - all.select(2, table.minus);
  }

  /// Positions from the beginning of each token's cell, which are at most the table's last [rows, length]. As transformers does, columns of padding count where
  /// they are given a cell.
  at::Tensor within_cells(const policy::Stack& stack, const at::Tensor& ids) {
    at::Tensor types = columns(stack.input, "token_type_ids", ids), positions = at::empty(ids.sizes(), at::kLong);
    if (!types.defined()) types = at::zeros({ids.size(0), ids.size(1), 3}, at::kLong);
    const auto type = types.accessor<int64_t, 3>();
    auto position = positions.accessor<int64_t, 2>();
    for (int64_t row = 0; row < ids.size(0); ++row) {
      std::map<std::pair<int64_t, int64_t>, int64_t> first;   // of each cell, by its column and row
      for (int64_t place = 0; place < ids.size(1); ++place) {
        const auto cell = first.emplace(std::pair{type[row][place][1], type[row][place][2]}, place).first;
        position[row][place] = std::min(place - cell->second, stack.positions - 1);
      }
    }
    return positions;
  }

  /// Columns with mask 1 of each row, after each other.
  static void lay_out(const std::string& name, const at::Tensor& mask, Feed& feed) {
    feed.rows = mask.size(0);
    feed.length = mask.size(1);
    std::vector<at::Tensor> places;
    int64_t first = 0;
    for (int64_t row = 0; row < feed.rows; ++row) {
      const at::Tensor columns = mask[row].nonzero().squeeze(1);
      const int64_t count = columns.numel();
      if (count == 0) refuse("row " + std::to_string(row) + " of " + name + " is all zero");
      feed.batch.sequences.push_back({.first = first, .tokens = count, .context = 0, .keys = count, .key_row = first, .blocks = {}});
      feed.columns.push_back(columns);
      places.push_back(columns + row * feed.length);
      first += count;
    }
    feed.places = at::cat(places);
  }

  template <typename Kept>
  void positions(const policy::Stack& stack, const at::Tensor& given, const at::Tensor& ids, const Kept& kept, Feed& feed) {
    const policy::Input& input = stack.input;
    at::Tensor& positions = feed.batch.positions;
    if (given.defined()) {
      positions = kept(given);
      if (input.position_given_rows) positions = positions - input.position_offset;
    } else if (input.position_cells) {
      positions = kept(within_cells(stack, ids));
    } else if (input.position_kept) {
      std::vector<at::Tensor> counts;
      for (const ops::SequenceSpan& sequence : feed.batch.sequences) counts.push_back(at::arange(sequence.tokens, at::kLong));
      positions = at::cat(counts);
    } else {
      positions = kept(at::arange(ids.size(1), at::kLong).expand(ids.sizes()));
    }
    const int64_t rows = input.positions ? input.positions->shape[0] - input.position_offset : stack.positions;
    if (rows > 0) in_range("position_ids", positions, input.position_given_rows ? -input.position_offset : 0, rows, "positions of this model");
  }

  /// What a head is given besides the stacks.
  void of_head(const policy::Head& head, Inputs& inputs) {
    const auto feed = inputs.feeds.find(head.stack);
    if (feed == inputs.feeds.end()) return;
    const int64_t rows = feed->second.rows, length = feed->second.length;
    const auto keep = [&](const std::string& name, const at::Tensor& values) { if (values.defined()) inputs.of_heads[name] = values; };
    if (head.spans) {
      if (const int64_t most = std::max(head.spans->starts, head.spans->ends); length < most) {
        refuse("input_ids has rows of " + std::to_string(length) + " columns; " + model_.architecture + " gives the " + std::to_string(most) + " best places of each row, so it needs as many");
      }
      keep("p_mask", given_.mask("p_mask", {rows, length}));
      const at::Tensor none = given_.tensor("cls_index", 1, "[batch]");
      if (none.defined() && (none.size(0) != rows || none.is_floating_point())) refuse("cls_index has the shape " + c10::str(none.sizes()) + ", expected one integer for each of the " + std::to_string(rows) + " rows");
      if (none.defined()) in_range("cls_index", none, 0, length, "columns");
      keep("cls_index", none);
    }
    if (head.pairs) {
      at::Tensor chosen = given_.tensor(head.pairs->chosen, 2, "[batch, tokens]");
      if (!chosen.defined()) refuse("the inputs have no tensor \"" + head.pairs->chosen + "\", the columns of tokens that are compared with the vectors behind them");
      if (!feed->second.batch.features.values.defined()) refuse(model_.architecture + " compares tokens with vectors, and the inputs have none");
      if (chosen.size(0) != rows) refuse(head.pairs->chosen + " has " + std::to_string(chosen.size(0)) + " rows, input_ids has " + std::to_string(rows));
      if (chosen.is_floating_point() && !(chosen == chosen.floor()).all().item<bool>()) refuse(head.pairs->chosen + " has fractional values, expected integers");
      chosen = chosen.to(at::kLong);
      in_range(head.pairs->chosen, chosen, -1, length, "columns");
      keep(head.pairs->chosen, chosen);
    }
  }

  bool pools(const char* pool) const {
    return std::any_of(model_.heads.begin(), model_.heads.end(), [&](const policy::Head& head) { return head.pool == pool; }) ||
           std::any_of(model_.stacks.begin(), model_.stacks.end(), [&](const policy::Stack& stack) { return stack.output.pooler && stack.output.pooler->pool == pool; });
  }

  /// "eot": the first end token; CLIP's older checkpoints say eos_token_id 2 and mean the token with the largest id. "last_eos": the column of the
  /// last one, which has to be there; where a decoder is pooled, it is the same column of the decoder's input. "last_but_one": of the tokens that are not padding.
  void find_ends(Inputs& inputs) {
    const bool last = pools("last_eos");
    if (ids_.defined() && pools("last_but_one")) {
      for (int64_t row = 0; row < ids_.size(0); ++row) {
        const auto count = mask_[row].count_nonzero().item<int64_t>();
        if (count < 2) refuse("row " + std::to_string(row) + " of input_ids has one token; " + model_.architecture + " reads the last but one");
        inputs.ends.push_back(count - 2);
      }
      return;
    }
    if (!ids_.defined() || (!last && !pools("eot"))) return;
    const int64_t eos = model_.eos.empty() ? -1 : model_.eos[0];
    for (int64_t row = 0; row < ids_.size(0); ++row) {
      const at::Tensor columns = mask_[row].nonzero().squeeze(1), ids = at::index_select(ids_[row], 0, columns);
      int64_t end = 0;
      if (!last && (eos < 0 || eos == 2)) {
        end = ids.argmax().item<int64_t>();
      } else {
        const at::Tensor ends = (ids == eos).nonzero().squeeze(1);
        if (last && ends.numel() == 0) refuse("row " + std::to_string(row) + " of input_ids has no end token (id " + std::to_string(eos) + "), whose state this model classifies");
        if (ends.numel() > 0) end = ends[last ? -1 : 0].item<int64_t>();
      }
      inputs.ends.push_back(place_of_end(columns[end].item<int64_t>(), end, row, inputs));
    }
  }

  /// Which token of the pooled stack stands in `column` of the row; `end` where no decoder is pooled.
  int64_t place_of_end(int64_t column, int64_t end, int64_t row, const Inputs& inputs) const {
    for (const policy::Stack& stack : model_.stacks) {
      const auto answers = inputs.feeds.find(stack.name);
      if (!crosses(stack) || answers == inputs.feeds.end()) continue;
      const at::Tensor place = (answers->second.columns[static_cast<size_t>(row)] == column).nonzero().squeeze(1);
      if (place.numel() == 0) {
        refuse("row " + std::to_string(row) + " of decoder_input_ids has no token in column " + std::to_string(column) + ", where input_ids has its end token");
      }
      return place[0].item<int64_t>();
    }
    return end;
  }

  void images(const policy::Stack& stack, Inputs& inputs) {
    const Array* array = given_.find("pixel_values");
    if (!array) {
      if (model_.stacks.size() == 1) refuse("the inputs have no tensor \"pixel_values\"");
      return;
    }
    if (!std::holds_alternative<std::vector<float>>(array->values)) refuse("pixel_values has integers, expected fp32");
    const at::Tensor pixels = tensor_of(*array);
    const std::vector<int64_t>& patch = stack.input.projection->weight.shape;
    const int64_t classes = stack.input.extra_tokens();
    const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(stack.positions - classes)) + 0.5) * patch[2];
    if (pixels.dim() != 4 || pixels.size(0) == 0 || pixels.size(1) != patch[1] || pixels.size(2) != side || pixels.size(3) != side) {
      refuse("pixel_values has the shape " + c10::str(pixels.sizes()) + ", expected [images, " + std::to_string(patch[1]) + ", " + std::to_string(side) + ", " +
             std::to_string(side) + "]");
    }
    Feed& feed = inputs.feeds[stack.name];
    lay_out("pixel_values", at::ones({pixels.size(0), stack.positions}, at::kLong), feed);
    feed.tokens = stack.positions;
    feed.batch.pixels = pixels;
    feed.batch.positions = at::arange(stack.positions, at::kLong).repeat({pixels.size(0)});
  }

  const policy::Model& model_;
  Given given_;
  at::Tensor ids_, mask_;   ///< of the encoder
};

}  // namespace

int64_t Feed::rows_of_batch() const { return places.size(0); }

at::Tensor Feed::padded(const at::Tensor& values) const {
  at::Tensor out = at::zeros({rows * length, values.size(1)}, values.options());
  out.index_copy_(0, places.to(values.device()), values);
  return out.reshape({rows, length, values.size(1)});
}

at::Tensor Feed::padded(const std::vector<at::Tensor>& of_sequences, const Feed& keys) const {
  at::Tensor whole = at::zeros({rows, of_sequences[0].size(0), length, keys.length}, of_sequences[0].options().dtype(at::kFloat));
  for (size_t row = 0; row < of_sequences.size(); ++row) {
    whole[static_cast<int64_t>(row)].index_put_({at::indexing::Slice(), columns[row].unsqueeze(1), keys.columns[row].unsqueeze(0)}, of_sequences[row]);
  }
  return whole;
}

Inputs Inputs::on(at::Device device) && {
  for (auto& [stack, feed] : feeds) {
    feed.batch = std::move(feed.batch).on(device);
    for (at::Tensor& columns : feed.columns) columns = columns.to(device);
    feed.places = feed.places.to(device);
  }
  for (auto& [name, tensor] : of_heads) tensor = tensor.to(device);
  return std::move(*this);
}

Inputs inputs_of(const policy::Model& model, const Arrays& arrays) {
  for (const auto& [name, array] : arrays) {   // whoever made the array: its memory is what its shape says
    int64_t elements = 1;
    for (int64_t size : array.shape) {
      if (size < 0 || size > (int64_t{1} << 31) || elements > (int64_t{1} << 31)) refuse(name + " has an impossible shape");
      elements *= size;
    }
    const size_t held = std::visit([](const auto& values) { return values.size(); }, array.values);
    if (held != static_cast<size_t>(elements)) refuse(name + " has " + std::to_string(held) + " values, its shape asks for " + std::to_string(elements));
  }
  return Reader(model, arrays).run();
}

Array array_of(const at::Tensor& tensor) {
  Array array{tensor.sizes().vec(), {}};
  if (at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true)) {
    const at::Tensor whole = tensor.to(at::kCPU, at::kLong).contiguous();
    array.values = std::vector<int64_t>(whole.const_data_ptr<int64_t>(), whole.const_data_ptr<int64_t>() + whole.numel());
  } else {
    const at::Tensor whole = tensor.to(at::kCPU, at::kFloat).contiguous();
    array.values = std::vector<float>(whole.const_data_ptr<float>(), whole.const_data_ptr<float>() + whole.numel());
  }
  return array;
}

at::Tensor tensor_of(const Array& array) {
  return std::visit([&](const auto& values) {
    using Value = typename std::decay_t<decltype(values)>::value_type;
    return at::from_blob(const_cast<Value*>(values.data()), array.shape, at::TensorOptions(std::is_same_v<Value, float> ? at::kFloat : at::kLong));
  }, array.values);
}

}  // namespace pm::models
