// SPDX-License-Identifier: Apache-2.0
// Constraints of clients: schemas, regular expressions, choices and grammars. The first byte is the kind, those up to a
// null byte choose tokens, the rest is the constraint's text. Every token that a mask allows can be appended, and no
// other can.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "tests/fuzz/input.h"
#include "tests/unit/worker/tokenizer/tokenizer_files.h"
#include "worker/tokenizer/ffi/textops.h"

namespace {

using pm::fuzz::hold;

/// Frees the text of an error and says what it was.
bool succeeds(int status, TxBuf& error, const std::string& what) {
  const std::string text = pm::fuzz::text(error.ptr, error.len);
  tx_buf_free(error);
  error = {};
  hold(status != 2, what + " panics: " + text);
  hold(status == 0 || !text.empty(), what + " fails without a reason");
  return status == 0;
}

TxVocabulary* vocabulary() {
  const pm::test::TempFolder folder;
  pm::test::write_tokenizer(folder.path(), pm::test::byte_level_json());
  TxTokenizer* tokenizer = nullptr;
  TxVocabulary* made = nullptr;
  TxBuf error{};
  hold(succeeds(tx_tokenizer_open(folder.path().c_str(), "", &tokenizer, &error), error, "opening"), "no tokenizer");
  hold(succeeds(tx_vocabulary_build(tokenizer, &made, &error), error, "building"), "no vocabulary");
  tx_tokenizer_free(tokenizer);
  return made;
}

/// Appends a token to a copy.
bool appends(const TxMatcher* matcher, const TxVocabulary* all, uint32_t id) {
  TxMatcher* copy = nullptr;
  TxBuf error{};
  hold(succeeds(tx_matcher_fork(matcher, &copy, &error), error, "forking"), "a matcher cannot be copied");
  bool ended = false;
  const bool done = succeeds(tx_matcher_append(copy, all, id, &ended, &error), error, "appending");
  tx_matcher_free(copy);
  return done;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TxVocabulary* const all = vocabulary();
  if (size < 3) return 0;
  const uint8_t* const end = std::find(data + 1, data + size, 0);
  if (end == data + size) return 0;
  TxMatcher* matcher = nullptr;
  TxBuf error{};
  const uint8_t* const text = end + 1;
  if (!succeeds(tx_matcher_compile(all, data[0] % 4, text, static_cast<size_t>(data + size - text), data[0] & 4,
                                   &matcher, &error),
                error, "compiling"))
    return 0;
  std::vector<uint32_t> words((tx_vocabulary_size(all) + 31) / 32);
  for (const uint8_t* choice = data + 1; choice < end; ++choice) {
    bool may_end = false, ended = false;
    if (!succeeds(tx_matcher_mask(matcher, all, words.data(), words.size(), &may_end, &error), error, "masking")) break;
    std::vector<uint32_t> allowed, others;
    for (uint32_t id = 0; id < tx_vocabulary_size(all); ++id)
      (words[id / 32] >> (id % 32) & 1 ? allowed : others).push_back(id);
    if (!others.empty() && (data[0] & 4) == 0)
      hold(!appends(matcher, all, others[*choice % others.size()]), "a token is appended that the mask does not allow");
    if (allowed.empty()) break;
    if (!succeeds(tx_matcher_append(matcher, all, allowed[*choice % allowed.size()], &ended, &error), error,
                  "appending"))
      hold(false, "a token is refused that the mask allows");
    if (ended) break;
  }
  tx_matcher_free(matcher);
  return 0;
}
