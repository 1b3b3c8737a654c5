// SPDX-License-Identifier: Apache-2.0
#include "worker/models/heads/heads.h"

#include <type_traits>
#include <variant>

#include "worker/models/heads/cells.h"
#include "worker/models/heads/classes.h"
#include "worker/models/heads/clusters.h"
#include "worker/models/heads/codebook.h"
#include "worker/models/heads/images/boxes.h"
#include "worker/models/heads/images/masks.h"
#include "worker/models/heads/images/pixel_shuffle.h"
#include "worker/models/heads/logits.h"
#include "worker/models/heads/mean.h"
#include "worker/models/heads/pairs.h"
#include "worker/models/heads/passages.h"
#include "worker/models/heads/similarity.h"
#include "worker/models/heads/spans.h"
#include "worker/models/heads/time_delay.h"

namespace pm::models {

namespace {

/// The class that runs a spec.
template <typename Spec>
struct Runs;
template <>
struct Runs<policy::LogitsSpec> : std::type_identity<LanguageModelHead> {};
template <>
struct Runs<policy::ClassesSpec> : std::type_identity<ClassesHead> {};
template <>
struct Runs<policy::CellsSpec> : std::type_identity<CellsHead> {};
template <>
struct Runs<policy::SpansSpec> : std::type_identity<SpansHead> {};
template <>
struct Runs<policy::PairsSpec> : std::type_identity<PairsHead> {};
template <>
struct Runs<policy::SimilaritySpec> : std::type_identity<SimilarityHead> {};
template <>
struct Runs<policy::MeanSpec> : std::type_identity<MeanHead> {};
template <>
struct Runs<policy::TimeDelaySpec> : std::type_identity<TimeDelayHead> {};
template <>
struct Runs<policy::CodebookSpec> : std::type_identity<CodebookHead> {};
template <>
struct Runs<policy::BoxesSpec> : std::type_identity<BoxesHead> {};
template <>
struct Runs<policy::MasksSpec> : std::type_identity<MasksHead> {};
template <>
struct Runs<policy::PixelShuffleSpec> : std::type_identity<PixelShuffleHead> {};
template <>
struct Runs<policy::ClustersSpec> : std::type_identity<ClustersHead> {};
template <>
struct Runs<policy::PassagesSpec> : std::type_identity<PassagesHead> {};

}  // namespace

std::unique_ptr<Head> make_head(const policy::Model& model, const policy::Head& head, layers::Loader& loader) {
  return std::visit(
      [&]<typename Spec>(const Spec& spec) -> std::unique_ptr<Head> {
        return std::make_unique<typename Runs<Spec>::type>(model, head, spec, loader);
      },
      head.kind);
}

void validate_heads(const policy::Model& model) {
  for (const policy::Head& head : model.heads)
    std::visit([&]<typename Spec>(const Spec& spec) { Runs<Spec>::type::validate(model, head, spec); }, head.kind);
}

void read_head_inputs(const policy::Model& model, RequestTensors& tensors, Inputs& inputs) {
  for (const policy::Head& head : model.heads) {
    const auto stack_input = inputs.stack_inputs.find(head.stack);
    if (stack_input == inputs.stack_inputs.end()) continue;
    std::visit(
        [&]<typename Spec>(const Spec& spec) {
          Runs<Spec>::type::read_inputs(model, spec, stack_input->second, tensors, inputs);
        },
        head.kind);
  }
}

void add_head_probe_inputs(const policy::Model& model, ProbeInputs& inputs) {
  for (const policy::Head& head : model.heads)
    std::visit([&]<typename Spec>(const Spec& spec) { Runs<Spec>::type::add_probe_inputs(model, head, spec, inputs); },
               head.kind);
}

}  // namespace pm::models
