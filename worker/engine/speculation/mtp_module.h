// SPDX-License-Identifier: Apache-2.0
// The module of a checkpoint for multi-token prediction (DeepSeek-AI, "DeepSeek-V3", 2024): a layer that reads the
// model's state of a token beside the embedding of the next one, and predicts the token behind that. It reads its own
// states to predict further ahead. It is whole on one rank, with KV blocks and a prefix cache of its own.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "worker/engine/speculation/draft_rank.h"
#include "worker/engine/speculation/drafter.h"

namespace pm::engine {

/// A loaded module, which the drafters of all data-parallel ranks share. Thread-safe. It needs
/// Speculation::reads_states.
///
/// Rows of an answer are computed when it drafts. One that has not drafted for long begins with its last tokens then,
/// so that the others cost nothing.
///
/// Row p of a sequence is made of the state of token p and of token p + 1. A sequence begins with the first token whose
/// state is known, or behind those whose rows are in the module's prefix cache: of a prefix that only the model's has,
/// no drafts depend on it.
class MtpModule {
 public:
  struct Limits {
    int64_t vocabulary = 0;
    int64_t positions = 0;    ///< longest text, drafts included
    int64_t kv_blocks = 0;    ///< of all sequences; one for which there are none begins again behind its last token
    int64_t step_tokens = 0;  ///< most rows of a step
  };
  MtpModule(std::unique_ptr<Rank>, const Limits&);
  /// Returns the drafter of one data-parallel rank. A failure of the module is logged, and ends its proposals.
  static std::unique_ptr<Drafter> drafter(std::shared_ptr<MtpModule>);

 private:
  class ModuleDrafter;
  struct Sequence {
    DraftRank::Table table;
    int64_t first = 0;  ///< position of its first row
    int64_t rows = 0;   ///< that are in the blocks, of the model's states
    at::Tensor states;  ///< [tokens behind these rows, hidden], whose rows are not computed; undefined: none
    /// Returns whether rows of a prompt of so many tokens wait, but for its last one.
    bool awaits_prompt(int64_t prompt) const { return first + rows + 1 < prompt; }
    int64_t waiting() const { return states.defined() ? states.size(0) : 0; }
    int64_t end() const { return first + rows + waiting(); }
  };
  using Sequences = std::map<int32_t, Sequence>;  ///< by the slots of a data-parallel rank

  /// A step that is built from rows of several sequences.
  struct Step {
    StepMessage message;
    std::vector<SamplingInput> inputs;
    std::vector<at::Tensor> states;
  };
  /// A sequence that drafts in this proposal.
  struct Open {
    size_t request = 0;
    Sequence* sequence = nullptr;
    std::vector<int32_t> text;  ///< its tokens and drafts
  };
  /// Runs `body` unless the module has failed; it fails with it.
  template <typename Body>
  void guarded(const Body& body);
  Drafts propose(std::span<const DraftRequest>, Sequences&);
  void observe(std::span<const TokenStates>, Sequences&);
  void fork(int32_t parent, int32_t slot, Sequences&);
  void release(Sequences&, int32_t slot);
  void start(Sequence&, std::span<const int32_t> tokens, int64_t position);
  void restart(Sequence&);
  void append(const TokenStates&, Sequences&);
  void drop_beginning(Sequence&);
  void catch_up(std::span<const TokenStates>, Sequences&);
  bool add_rows(Sequence&, std::span<const int32_t> tokens, int64_t rows, Step&);
  void add_draft(Sequence&, size_t number, int32_t id, const at::Tensor& state, Step&) const;
  std::vector<SamplerOutput> draw(Step&, std::vector<at::Tensor>& last_states);
  int64_t count_of(const DraftRequest&) const;

  const Limits limits_;
  std::mutex mutex_;  ///< guards all below
  DraftRank rank_;
  bool failed_ = false;
};

}  // namespace pm::engine
