// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/input/entities.h"

namespace pm::policy {

void Entities::collect(ParamCollector& all) const {
  all.add(table);
  all.add(projection);
  all.add(positions);
  for (const IndexTable& one : tables) all.add(one.table);
  all.add(norm);
}

void EntityQueries::collect(ParamCollector& all) const {
  all.add(word_to_entity);
  all.add(entity_to_word);
  all.add(entity_to_entity);
}

}  // namespace pm::policy
