// SPDX-License-Identifier: Apache-2.0
#include "worker/models/requests/entities.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace pm::models {

namespace {

using policy::EntityStates;

bool reads(const policy::Model& model, EntityStates states) {
  return std::any_of(model.heads.begin(), model.heads.end(),
                     [&](const policy::Head& head) { return head.entities == states; });
}

/// Refuses a request without the entities that a head of the model reads.
void expect_entities(const policy::Model& model, const std::string& name, const RequestEntities& found) {
  const int64_t least = reads(model, EntityStates::Pair)                                        ? 2
                        : reads(model, EntityStates::First) || reads(model, EntityStates::Span) ? 1
                                                                                                : 0;
  if (least == 0) return;
  const std::string wanted = model.architecture + " classifies " + (least == 2 ? "pairs of entities" : "entities");
  if (!found.ids.defined()) refuse("the inputs have no tensor \"" + name + "\"; " + wanted);
  if (reads(model, EntityStates::Span)) return;
  if (found.ids.size(1) < least || !found.mask.narrow(1, 0, least).all().item<bool>())
    refuse(name + " has rows without " + (least == 2 ? "two entities" : "an entity") + " in front; " + wanted);
}

/// Returns an int64 tensor [rows, entities] of the request. Undefined when it is absent.
at::Tensor numbers(const std::string& name, const at::Tensor& ids, RequestTensors& tensors) {
  const Array* array = tensors.find(name);
  return array ? tensors.ints(name, ids) : at::Tensor();
}

/// Returns which of the batch's rows stands at each of [rows x length]; -1: none does.
at::Tensor rows_of_places(const StackInput& stack_input) {
  return at::full({stack_input.rows * stack_input.length}, -1, at::kLong)
      .index_copy(0, stack_input.places, at::arange(stack_input.places.numel(), at::kLong));
}

/// Returns the batch's rows of the tokens in `columns` [rows, entities] of the entities at `chosen`.
at::Tensor token_rows(const std::string& name, const at::Tensor& columns, const at::Tensor& chosen, int64_t tokens,
                      const at::Tensor& rows, int64_t length) {
  const at::Tensor own = at::index_select(columns.flatten(), 0, chosen);
  if (own.numel() > 0) check_range(name, own, 0, tokens, "columns of tokens");
  const at::Tensor row = chosen.div(columns.size(1), "floor");
  const at::Tensor found = at::index_select(rows, 0, row * length + own);
  if ((found < 0).any().item<bool>()) refuse(name + " has columns of padding");
  return found;
}

}  // namespace

RequestEntities read_entities(const policy::Model& model, const policy::Stack& stack, const at::Tensor& ids,
                              RequestTensors& tensors) {
  RequestEntities found;
  if (!stack.input.entities) return found;
  const policy::Entities& entities = *stack.input.entities;
  found.ids = numbers(entities.input, {}, tensors);
  const bool spans = reads(model, EntityStates::Span);
  const char *starts = "entity_start_positions", *ends = "entity_end_positions";
  if (!found.ids.defined()) {  // the accompanying tensors are known but useless
    std::vector<std::string> names{entities.mask, entities.mentions};
    for (const policy::IndexTable& table : entities.tables) names.push_back(table.input);
    for (const std::string& name : names)
      if (tensors.find(name)) refuse(name + " is given without " + entities.input);
    expect_entities(model, entities.input, found);
    return found;
  }
  if (found.ids.size(0) != ids.size(0))
    refuse(entities.input + " has " + std::to_string(found.ids.size(0)) + " rows, input_ids has " +
           std::to_string(ids.size(0)));
  check_range(entities.input, found.ids, 0, entities.table.shape[0], "ids");
  found.mask = numbers(entities.mask, found.ids, tensors);
  if (!found.mask.defined()) found.mask = at::ones_like(found.ids);
  found.mentions = tensors.tensor(entities.mentions, 3, "[rows, entities, positions]");
  if (!found.mentions.defined()) refuse(entities.input + " is given without " + entities.mentions);
  if (found.mentions.is_floating_point() || found.mentions.sizes().slice(0, 2) != found.ids.sizes())
    refuse(entities.mentions + " has the shape " + c10::str(found.mentions.sizes()) +
           ", expected integers for each of the entities " + c10::str(found.ids.sizes()));
  check_range(entities.mentions, found.mentions, -1, entities.positions.shape[0], "positions");
  for (const policy::IndexTable& table : entities.tables) {
    at::Tensor types = numbers(table.input, found.ids, tensors);
    if (!types.defined()) types = at::full_like(found.ids, table.default_row);
    check_range(table.input, types, 0, table.table.shape[0], "they");
    found.types[table.key()] = types;
  }
  expect_entities(model, entities.input, found);
  if (!spans) return found;
  found.starts = numbers(starts, found.ids, tensors);
  found.ends = numbers(ends, found.ids, tensors);
  if (!found.starts.defined() || !found.ends.defined())
    refuse(model.architecture + " needs " + starts + " and " + ends + " for each of the entities " +
           c10::str(found.ids.sizes()));
  return found;
}

void lay_out_entities(const RequestEntities& request, int64_t tokens, StackInput& stack_input) {
  layers::EntityRows& rows = stack_input.batch.entities;
  const at::Tensor unmasked = request.mask.flatten().nonzero().squeeze(1);
  if (unmasked.numel() == 0) return;
  const auto chosen = [&](const at::Tensor& values) { return at::index_select(values.flatten(), 0, unmasked); };
  rows.ids = chosen(request.ids);
  rows.rows = (stack_input.places.remainder(stack_input.length) >= tokens).nonzero().squeeze(1);
  for (const auto& [key, types] : request.types) rows.types[key] = chosen(types);
  const at::Tensor mentions = at::index_select(request.mentions.flatten(0, 1), 0, unmasked), there = mentions != -1;
  rows.mentioned = there.nonzero().select(1, 0);
  rows.positions = mentions.masked_select(there);
  rows.shares = at::index_select(there.sum(1).to(at::kFloat).reciprocal(), 0, rows.mentioned);
  if (!request.starts.defined()) return;
  const at::Tensor places = rows_of_places(stack_input);
  const auto found = [&](const char* name, const at::Tensor& columns) {
    return token_rows(name, columns, unmasked, tokens, places, stack_input.length);
  };
  stack_input.entity_starts = found("entity_start_positions", request.starts);
  stack_input.entity_ends = found("entity_end_positions", request.ends);
}

void append_entities(layers::EntityRows& all, const layers::EntityRows& more, int64_t row) {
  if (!more.ids.defined()) return;
  const int64_t before = all.ids.defined() ? all.ids.size(0) : 0;
  const auto append = [](at::Tensor& to, const at::Tensor& values) {
    to = to.defined() ? at::cat({to, values}) : values;
  };
  append(all.ids, more.ids);
  append(all.rows, more.rows + row);
  for (const auto& [key, types] : more.types) append(all.types[key], types);
  append(all.mentioned, more.mentioned + before);
  append(all.positions, more.positions);
  append(all.shares, more.shares);
}

at::Tensor entity_states(EntityStates states, const StackInput& stack_input, const at::Tensor& x) {
  const at::Tensor& rows = stack_input.batch.entities.rows;
  if (states == EntityStates::Each) return at::index_select(x, 0, rows);
  if (states == EntityStates::Span)
    return at::cat({at::index_select(x, 0, stack_input.entity_starts), at::index_select(x, 0, stack_input.entity_ends),
                    at::index_select(x, 0, rows)},
                   1);
  // entities of a row follow its tokens, and the first ones are not masked
  std::vector<int64_t> first;
  for (size_t row = 0; row < stack_input.columns.size(); ++row)
    first.push_back(stack_input.batch.sequences.spans[row].first +
                    (stack_input.columns[row] < stack_input.tokens).sum().item<int64_t>());
  const at::Tensor one = at::tensor(first, at::kLong).to(x.device());
  const at::Tensor own = at::index_select(x, 0, one);
  return states == EntityStates::First ? own : at::cat({own, at::index_select(x, 0, one + 1)}, 1);
}

at::Tensor token_states(const StackInput& stack_input, const at::Tensor& x) {
  const at::Tensor own = (stack_input.places.remainder(stack_input.length) < stack_input.tokens).nonzero().squeeze(1);
  return at::index_select(x, 0, own);
}

at::Tensor padded_part(const StackInput& stack_input, const at::Tensor& values, bool entities) {
  const at::Tensor column = stack_input.places.remainder(stack_input.length);
  const at::Tensor is_token = column < stack_input.tokens, own = entities ? at::logical_not(is_token) : is_token;
  const int64_t count = entities ? stack_input.length - stack_input.tokens : stack_input.tokens;
  const at::Tensor row = stack_input.places.div(stack_input.length, "floor"),
                   place = row * count + column - (entities ? stack_input.tokens : 0);
  at::Tensor out = at::zeros({stack_input.rows * count, values.size(1)}, values.options());
  out.index_copy_(0, place.masked_select(own).to(values.device()), values);
  return out.reshape({stack_input.rows, count, values.size(1)});
}

}  // namespace pm::models
