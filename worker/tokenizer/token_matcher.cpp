// SPDX-License-Identifier: Apache-2.0
// The C++ side of constraints: calls the C ABI of worker/tokenizer/ffi.
#include "worker/tokenizer/token_matcher.h"

#include <mutex>

#include "worker/base/error.h"
#include "worker/tokenizer/buffer.h"

namespace pm {
namespace {

TxMatcher* matcher(const std::shared_ptr<void>& handle) { return static_cast<TxMatcher*>(handle.get()); }

const TxVocabulary* vocabulary_of(const std::shared_ptr<void>& handle) {
  return static_cast<const TxVocabulary*>(handle.get());
}

void check(int status, const Buffer& error) {
  if (status != 0) throw Error(Reason::InvalidRequest, error.text());
}

std::shared_ptr<void> owned(TxMatcher* handle) {
  return {handle, [](void* p) { tx_matcher_free(static_cast<TxMatcher*>(p)); }};
}

}  // namespace

/// Built with the first constraint, because few models ever get one.
struct Tokenizer::Constraints {
  std::mutex mutex;
  std::shared_ptr<void> vocabulary;
};

std::shared_ptr<Tokenizer::Constraints> Tokenizer::make_constraints() { return std::make_shared<Constraints>(); }

std::shared_ptr<void> Tokenizer::constraint_vocabulary() const {
  std::lock_guard lock(constraints_->mutex);
  if (constraints_->vocabulary) return constraints_->vocabulary;
  TxVocabulary* made = nullptr;
  Buffer error;
  check(tx_vocabulary_build(static_cast<const TxTokenizer*>(handle_.get()), &made, &error), error);
  constraints_->vocabulary = {made, [](void* p) { tx_vocabulary_free(static_cast<TxVocabulary*>(p)); }};
  return constraints_->vocabulary;
}

TokenMatcher TokenMatcher::compile(const Tokenizer& tokenizer, ConstraintKind kind, std::string_view text,
                                   bool at_start) {
  const std::shared_ptr<void> vocabulary = tokenizer.constraint_vocabulary();
  TxMatcher* made = nullptr;
  Buffer error;
  check(tx_matcher_compile(vocabulary_of(vocabulary), static_cast<uint32_t>(kind),
                           reinterpret_cast<const uint8_t*>(text.data()), text.size(), at_start, &made, &error),
        error);
  return {vocabulary, owned(made)};
}

TokenMatcher TokenMatcher::fork() const {
  TxMatcher* made = nullptr;
  Buffer error;
  check(tx_matcher_fork(matcher(handle_), &made, &error), error);
  return {vocabulary_, owned(made)};
}

TokenMatcher::Mask TokenMatcher::mask() {
  const TxVocabulary* vocabulary = vocabulary_of(vocabulary_);
  Mask mask{.words = std::vector<uint32_t>((tx_vocabulary_size(vocabulary) + 31) / 32)};
  Buffer error;
  check(tx_matcher_mask(matcher(handle_), vocabulary, mask.words.data(), mask.words.size(), &mask.may_end, &error),
        error);
  return mask;
}

bool TokenMatcher::append(int32_t id) {
  bool ended = false;
  Buffer error;
  check(tx_matcher_append(matcher(handle_), vocabulary_of(vocabulary_), static_cast<uint32_t>(id), &ended, &error),
        error);
  return ended;
}

}  // namespace pm
