// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/report.h"

#include <iomanip>
#include <sstream>

namespace pm::policy {

namespace {

std::string_view text_of(Axis axis) {
  switch (axis) {
    case Axis::None:
      return "whole";
    case Axis::Heads:
      return "heads";
    case Axis::Kv:
      return "kv heads";
    case Axis::KvRows:
      return "kv rows";
    case Axis::Ffn:
      return "columns";
    case Axis::Vocab:
      return "rows";
    case Axis::Positions:
      return "positions";
    case Axis::Groups:
      return "groups";
    case Axis::Passages:
      return "passages";
    case Axis::Latent:
      return "whole";
  }
  return "?";
}

std::string layers_of(const Part& part) {
  if (part.first < 0) return part.stack.empty() ? "-" : part.first == stack_output ? "after" : "before";
  std::string text = std::to_string(part.first);
  if (part.count > 1) text.append("-").append(std::to_string(part.first + part.count - 1));
  return text;
}

std::string mib(int64_t bytes) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2) << static_cast<double>(bytes) / (1 << 20) << " MiB";
  return out.str();
}

}  // namespace

std::string inspect_report(const Model& model) {
  const ModelMetadata& metadata = model.metadata;
  std::ostringstream out;
  out << model.architecture << " (" << model.model_type << "), " << to_string(model.task)
      << (model.recompute ? ", generates: " : ": ") << metadata.parameters << " parameters, "
      << mib(metadata.checkpoint_bytes) << " mostly " << name_of(metadata.dtype) << "\n";
  for (const StackMetadata& stack : metadata.stacks) {
    out << "stack " << stack.name << ": " << stack.layers << " layers, hidden " << stack.hidden << ", heads "
        << stack.heads << " (kv " << stack.kv_heads << ") x " << stack.head_dim;
    for (const HeadLayout& layout : stack.layouts)
      out << " or " << layout.heads << " (kv " << layout.kv_heads << ") x " << layout.head_dim;
    if (stack.latent > 0) out << ", latents of " << stack.latent << " a token";
    out << ", ffn " << stack.ffn << ", vocabulary " << stack.vocab << ", positions " << stack.positions
        << (stack.causal ? ", causal" : "") << (stack.cross ? ", cross-attention" : "") << "\n";
  }
  out << std::left << std::setw(10) << "stack" << std::setw(10) << "layers" << std::setw(16) << "sharded by"
      << std::setw(7) << "type" << std::right << std::setw(16) << "bytes" << "\n";
  for (const Part& part : metadata.parts) {
    const std::string sharded_by = part.axis == Axis::None || part.axis == Axis::Latent
                                       ? "whole"
                                       : std::to_string(part.units) + " " + std::string(text_of(part.axis));
    out << std::left << std::setw(10) << (part.stack.empty() ? "-" : part.stack) << std::setw(10) << layers_of(part)
        << std::setw(16) << sharded_by << std::setw(7) << name_of(part.dtype) << std::right << std::setw(16)
        << part.units * part.elements_per_unit * part.count * size_of(part.dtype)
        << (part.keep ? "  always in this type" : "") << "\n";
  }
  if (!model.not_loaded.empty()) {
    out << "not loaded:";
    for (const std::string& name : model.not_loaded) out << " " << name;
    out << "\n";
  }
  return out.str();
}

}  // namespace pm::policy
