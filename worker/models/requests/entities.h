// SPDX-License-Identifier: Apache-2.0
// Reads the entities of a request, places them behind the tokens of their rows, joins those of several requests, and
// finds the states that heads read of them.
#pragma once
#include "worker/layers/batch.h"
#include "worker/models/requests/request_tensors.h"
#include "worker/models/requests/stack_input.h"

namespace pm::models {

/// The entities of a request; all undefined when it has none.
struct RequestEntities {
  at::Tensor ids, mask;                     ///< [rows, entities] int64
  at::Tensor mentions;                      ///< [rows, entities, positions] int64, -1: none
  std::map<std::string, at::Tensor> types;  ///< [rows, entities] int64 by the table's key
  at::Tensor starts, ends;                  ///< [rows, entities] int64: columns of tokens; only where a head reads them
};

/// Reads the entities of rows with these ids [rows, length]. Throws Error{InvalidRequest} that names the tensor.
RequestEntities read_entities(const policy::Model&, const policy::Stack&, const at::Tensor& ids, RequestTensors&);
/// Makes the entities that are not masked rows of the stack's batch, whose places are laid out; they follow `tokens`
/// columns of tokens. Throws Error{InvalidRequest} for a mention that begins or ends at padding.
void lay_out_entities(const RequestEntities&, int64_t tokens, StackInput&);
/// Appends `more` to `all`; the rows of its batch begin at `row`.
void append_entities(layers::EntityRows& all, const layers::EntityRows& more, int64_t row);

/// Returns the states of entities that a head reads, of a request's states x [rows, hidden].
at::Tensor entity_states(policy::EntityStates, const StackInput&, const at::Tensor& x);
/// Returns the states of tokens.
at::Tensor token_states(const StackInput&, const at::Tensor& x);
/// Pads values of tokens to [rows, tokens, width], or of entities to [rows, entities, width].
at::Tensor padded_part(const StackInput&, const at::Tensor& values, bool entities);

}  // namespace pm::models
