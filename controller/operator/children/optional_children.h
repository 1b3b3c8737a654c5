// SPDX-License-Identifier: Apache-2.0
// Declares the children whose APIs a cluster may lack, or for which the controller may have no rights: their CRDs are
// installed later, or never. They are not watched, but read once per reconcile, from when status says that one may
// exist until it is gone.
#pragma once
#include <span>

#include "controller/operator/children/desired.h"

namespace pm::op {

struct OptionalChild {
  const k8s::Resource& resource;
  const char* field;     ///< of the spec, that wants it
  const char* status;    ///< the field of the status that is true while it may exist
  const char* provider;  ///< what installs the CRD
  const char* value;     ///< of the chart, that grants the rights
  bool (*wanted)(const Spec&);
  Json (*build)(const Owner&, const Spec&, const Snapshot&, const Settings&);
};

/// Returns all of them, in the order in which they are reconciled.
std::span<const OptionalChild> optional_children();
/// Returns the one of a kind; null for other kinds.
const OptionalChild* optional_child(const k8s::Resource&);

}  // namespace pm::op
