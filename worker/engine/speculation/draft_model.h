// SPDX-License-Identifier: Apache-2.0
// A draft model (Leviathan et al. 2023, Chen et al. 2023): a small model of the same vocabulary proposes tokens. It is
// whole on one rank and has KV blocks and a prefix cache of its own, so that nothing of it depends on how the model is
// cut, or on its blocks.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "worker/engine/speculation/draft_rank.h"
#include "worker/engine/speculation/drafter.h"

namespace pm::engine {

/// A loaded draft model, which the drafters of all data-parallel ranks share. Thread-safe.
///
/// It draws a draft with the parameters, the history and the random number that the model draws its token with. So two
/// models of similar scores draw the same token, also at a high temperature. Constraints are not applied to drafts:
/// what they exclude is rejected.
class DraftModel {
 public:
  struct Limits {
    int64_t vocabulary = 0;         ///< of the draft model: a text with other ids is not continued
    int64_t target_vocabulary = 0;  ///< of the model that it drafts for: no other id is proposed
    int64_t positions = 0;          ///< longest text, drafts included
    int64_t kv_blocks = 0;          ///< of all sequences; those for which there are none do not draft
    int64_t step_tokens = 0;        ///< a proposal reads at most so many tokens of texts that it has not seen
  };
  DraftModel(std::unique_ptr<Rank>, const Limits&);
  /// Returns the drafter of one data-parallel rank. A failure of the draft model is logged, and ends its proposals.
  static std::unique_ptr<Drafter> drafter(std::shared_ptr<DraftModel>);

 private:
  class ModelDrafter;
  /// What the draft model has computed of a sequence.
  struct Sequence {
    DraftRank::Table table;
    std::vector<int32_t> tokens;  ///< whose keys and values are in the blocks, rejected drafts included
    size_t known = 0;             ///< tokens of the sequence at the last proposal
  };
  using Sequences = std::map<int32_t, Sequence>;  ///< by the slots of a data-parallel rank

  /// A sequence that drafts in this proposal.
  struct Open {
    size_t request = 0;
    Sequence* sequence = nullptr;
    std::vector<int32_t> text;  ///< its tokens and drafts
  };
  Drafts propose(std::span<const DraftRequest>, Sequences&);
  void release(Sequences&, int32_t slot);
  Sequence* resume(const DraftRequest&, Sequences&);
  int64_t count_of(const DraftRequest&) const;
  void add_entry(Sequence&, std::span<const int32_t> tokens, StepMessage&) const;

  const Limits limits_;
  std::mutex mutex_;  ///< guards all below
  DraftRank rank_;
  bool failed_ = false;
};

}  // namespace pm::engine
