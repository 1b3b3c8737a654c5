// SPDX-License-Identifier: Apache-2.0
// Entities that stand behind the tokens of a text, and what reads their states.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/policy/spec/input/index_table.h"
#include "worker/policy/spec/param.h"

namespace pm::policy {

/// Entities of a request that are appended to the tokens of their row (Yamada et al. 2020, "LUKE"). An embedding is
/// norm(projection(row of the table) + mean of the positions at which the entity is mentioned + types).
struct Entities {
  std::string input, mask;           ///< names in the request: ids [rows, entities], mask [rows, entities]
  std::string mentions;              ///< name in the request: positions of tokens [rows, entities, positions], -1: none
  Param table;                       ///< [entities, width]
  std::optional<Linear> projection;  ///< [hidden, width]
  Param positions;                   ///< [positions, hidden]
  std::vector<IndexTable> tables;    ///< indices [rows, entities]
  std::optional<Norm> norm;

  void collect(ParamCollector&) const;
};

/// Queries of their own for what tokens and entities ask of each other; the query of the attention is that of tokens
/// for tokens.
struct EntityQueries {
  Linear word_to_entity, entity_to_word, entity_to_entity;  ///< as the attention's query

  void collect(ParamCollector&) const;
};

}  // namespace pm::policy
