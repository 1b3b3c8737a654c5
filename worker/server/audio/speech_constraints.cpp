// SPDX-License-Identifier: Apache-2.0
#include "worker/server/audio/speech_constraints.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace pm::server {
namespace {

/// Sets of ids as the words of a mask.
class IdSet {
 public:
  explicit IdSet(int64_t vocabulary) : vocabulary_(vocabulary), words_(static_cast<size_t>(vocabulary + 31) / 32) {}
  void add(int64_t id) { words_[static_cast<size_t>(id) / 32] |= uint32_t{1} << (id % 32); }
  void remove(int64_t first, int64_t end) {
    for (int64_t id = std::max<int64_t>(first, 0); id < std::min(end, vocabulary_); ++id)
      words_[static_cast<size_t>(id) / 32] &= ~(uint32_t{1} << (id % 32));
  }
  void fill() { std::fill(words_.begin(), words_.end(), UINT32_MAX); }
  std::vector<uint32_t> take() { return std::move(words_); }

 private:
  int64_t vocabulary_;
  std::vector<uint32_t> words_;
};

class TimesConstraint final : public engine::TokenConstraint {
 public:
  TimesConstraint(const SpeechTokens& speech, int32_t end)
      : vocabulary_(speech.vocabulary),
        no_timestamps_(speech.no_timestamps),
        first_(speech.first_timestamp()),
        most_initial_(speech.most_initial),
        end_(end) {}
  std::unique_ptr<engine::TokenConstraint> fork() const override { return std::make_unique<TimesConstraint>(*this); }
  engine::TokenMask next() override {
    IdSet ids(vocabulary_);
    ids.fill();
    ids.remove(no_timestamps_, no_timestamps_ + 1);
    if (length_ == 0) {
      ids.remove(0, first_);
      if (most_initial_) ids.remove(first_ + *most_initial_ + 1, vocabulary_);
    } else {
      if (last_is_time_ && before_is_time_) ids.remove(first_, vocabulary_);
      if (last_is_time_ && !before_is_time_) ids.remove(0, end_);
      // the beginning of a segment may equal the end of the one before; other times are later
      if (latest_ >= 0) ids.remove(first_, last_is_time_ && !before_is_time_ ? latest_ : latest_ + 1);
    }
    may_end_ = length_ > 0;
    return {ids.take(), may_end_, first_};
  }
  bool may_end() const override { return may_end_; }
  bool append(int32_t id) override {
    may_end_ = false;
    before_is_time_ = length_ == 0 || last_is_time_;
    last_is_time_ = id >= first_;
    if (last_is_time_) latest_ = id;
    ++length_;
    return false;
  }

 private:
  int64_t vocabulary_;
  int32_t no_timestamps_, first_;
  std::optional<int64_t> most_initial_;
  int32_t end_;
  int64_t length_ = 0;
  int32_t latest_ = -1;  ///< of the times
  bool last_is_time_ = false, before_is_time_ = true, may_end_ = false;
};

class LanguageConstraint final : public engine::TokenConstraint {
 public:
  explicit LanguageConstraint(const SpeechTokens& speech) : vocabulary_(speech.vocabulary) {
    for (const auto& [code, id] : speech.languages) ids_.push_back(id);
  }
  std::unique_ptr<engine::TokenConstraint> fork() const override { return std::make_unique<LanguageConstraint>(*this); }
  engine::TokenMask next() override {
    IdSet ids(vocabulary_);
    for (const int32_t id : ids_) ids.add(id);
    return {.words = ids.take()};
  }
  bool may_end() const override { return false; }
  bool append(int32_t id) override {
    if (std::find(ids_.begin(), ids_.end(), id) == ids_.end())
      throw std::invalid_argument("token " + std::to_string(id) + " is no language");
    return true;
  }

 private:
  int64_t vocabulary_;
  std::vector<int32_t> ids_;
};

}  // namespace

std::shared_ptr<const engine::TokenConstraint> times_constraint(const SpeechTokens& speech, int32_t end) {
  return std::make_shared<TimesConstraint>(speech, end);
}

std::shared_ptr<const engine::TokenConstraint> language_constraint(const SpeechTokens& speech) {
  return std::make_shared<LanguageConstraint>(speech);
}

}  // namespace pm::server
