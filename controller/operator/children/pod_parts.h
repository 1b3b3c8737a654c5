// SPDX-License-Identifier: Apache-2.0
// Declares the common parts of inspect, fetch and worker pods.
#pragma once
#include "controller/operator/children/desired.h"

namespace pm::op {

/// Makes a pod with one container `worker`: labels and annotations of the user, scheduling, the restricted security
/// profile, /tmp, env, and the volume of the model: an image, or a PVC, which is writable in a fetch pod only. An
/// inspect pod of a model on the hub has none. Callers add ports, probes, resources, args and further volumes.
Json base_pod(const Owner&, const Spec&, const Settings&, const std::string& name, const std::string& role,
              const std::string& image);
/// Adds a volume and its mount.
void mount(Json& pod, Json volume, const std::string& path, bool read_only);
/// Mounts the volume of a source whole and read-only, unless the pod has it already, and returns the path of the source
/// in it. A volume that is new has this name and this folder. Call it after the model is mounted.
std::string mount_source(Json& pod, const Source&, const std::string& name, const std::string& folder);
/// Returns the folder of the checkpoint inside the container. The whole PVC is mounted, not the folder alone:
/// checkpoints may be links to files elsewhere in the PVC (as in the Hugging Face cache), and Kubernetes would create a
/// missing folder.
std::string model_folder(const Spec&, const std::string& commit);
/// Mounts the Secret with the hub token and returns the path of its file; returns "" without a token.
std::string mount_token(Json& pod, const Spec&);
/// Makes a pod wait for the queue of the spec, if it names one, as one of `pods` pods of a group of this name. The pods
/// have Kueue's scheduling gate from the start, so that they wait also where Kueue does not run yet. They name a parent
/// that makes them again: Kueue then sets no finalizer on them, which would hold pods that are deleted in the queue.
void enter_queue(Json& pod, const Spec&, const std::string& group, int pods);
/// Returns the image of pods without devices: that of the spec, else the default of the operator.
std::string image_of(const Spec&, const Settings&);
/// Returns the default image of the operator for replicas, whatever the spec says. The plan stores it, so that an
/// upgrade of the operator does not replace replicas whose spec names no image.
std::string default_replica_image(const Spec&, const Settings&);

}  // namespace pm::op
