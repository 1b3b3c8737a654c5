// SPDX-License-Identifier: Apache-2.0
// Rules of the sections by which a model has parts of other families.
#pragma once
#include "worker/policy/schema/rules.h"
#include "worker/policy/spec/enums.h"

namespace pm::policy {

inline Rule images() {
  const Rule matrix = row({{"bias", expression}, {"layout", word(layout_words)}});
  const Keys projector =
      expressions({"pool", "norm_merged", "merge", "by_channel"}) + Keys{{"prefix", names},
                                                                         {"norm", norm_row()},
                                                                         {"merging", matrix},
                                                                         {"first", matrix},
                                                                         {"act", word(words<Activation>())},
                                                                         {"last", matrix}};
  const Keys own{{"section", text},
                 {"prefix", names},
                 {"projector", section(projector)},
                 {"deepstack", section(projector + expressions({"states"}))},
                 {"before", text},
                 {"after", text}};
  return section(own + expressions({"tower", "token", "state", "skip", "bidirectional", "placeholder", "begin", "end",
                                    "row_ends"}));
}

inline Rule compose() {
  return section({{"encoder", text},
                  {"decoder", text},
                  {"reads", word(reads_words)},
                  {"states", word(encoder_states_words)},
                  {"projection", linear()}});
}

inline Rule retrieve() {
  return section({{"prefix", text},
                  {"question_encoder", text},
                  {"generator", text},
                  {"docs", expression},
                  {"max_length", expression},
                  {"text_prefix", expression},
                  {"title_sep", expression},
                  {"doc_sep", expression},
                  {"deduplicate", expression},
                  {"bos", expression},
                  {"pad", expression},
                  {"forced_bos", expression},
                  {"forced_eos", expression}});
}

}  // namespace pm::policy
