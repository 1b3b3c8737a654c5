// SPDX-License-Identifier: Apache-2.0
// The base of task heads that run. Each kind of policy::Head has a class in a file of its own, which says what it takes
// of a request, what it computes, its outputs, and which options it does not run.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "worker/models/requests/request_forward.h"
#include "worker/models/requests/request_tensors.h"
#include "worker/policy/spec/model.h"

namespace pm::models {

/// The smallest inputs that a model takes: tokens per row of ids, and the tensors that heads need beside them.
struct ProbeInputs {
  int64_t tokens = 1;
  Arrays arrays;
};

/// Returns whether a similarity compares the vectors of the head `name`, which then puts out normalized vectors.
bool is_compared(const policy::Model&, const std::string& name);
/// Returns whether a mean is made of the vectors of the head `name`.
bool is_averaged(const policy::Model&, const std::string& name);
/// The output with the scores of the last token of each row alone, [rows, vocabulary], as transformers gives them out
/// with logits_to_keep = 1. It is put out where a request names it.
inline constexpr const char* last_logits = "last_logits";
/// Returns whether a request wants that output of this head, which has it where it scores the tokens of rows of text,
/// one after the other, to generate.
bool wants_last_logits(const policy::Model&, const policy::Head&, const RequestForward&);
/// Returns whether a request has the inputs of a head, and needs its outputs or those of a head made of them.
bool needs_head(const policy::Model&, const policy::Head&, const RequestForward&);

class Head {
 public:
  virtual ~Head() = default;
  /// Runs over the states of all requests that need the head, and stores their outputs.
  virtual void run(std::span<RequestForward>) const = 0;

  // heads.cpp calls the following for each kind, with its spec. A kind hides those of which it has more to say.
  /// Throws Error{UnknownArchitecture} for options that this version does not run.
  template <typename Spec>
  static void validate(const policy::Model&, const policy::Head&, const Spec&) {}
  /// Reads the tensors of a request that the head takes beside those of its stack. Throws Error{InvalidRequest}.
  template <typename Spec>
  static void read_inputs(const policy::Model&, const Spec&, const StackInput&, RequestTensors&, Inputs&) {}
  /// Adds what the smallest inputs of a model with this head have.
  template <typename Spec>
  static void add_probe_inputs(const policy::Model&, const policy::Head&, const Spec&, ProbeInputs&) {}

 protected:
  Head(const policy::Model& model, const policy::Head& head) : model_(model), head_(head) {}
  const policy::Model& model_;
  const policy::Head& head_;
};

}  // namespace pm::models
