// What inspect pods and worker pods have in common.
#pragma once
#include "controller/operator/desired.h"

namespace pm::op {

/// A pod with one container `worker`: user's labels and annotations, scheduling, restricted security, /tmp, env, and the claim of the model, read-only but in a
/// fetch pod; an inspect pod of a model on the hub has none. Ports, probes, resources, args and further volumes are the caller's.
Json base_pod(const Owner&, const Spec&, const Settings&, const std::string& name, const std::string& role, const std::string& image);
/// Adds a volume and where the container sees it.
void mount(Json& pod, Json volume, const std::string& path, bool read_only);
/// The folder of the checkpoint inside the container. The whole claim is mounted, not the folder alone: checkpoints may be links to files
/// elsewhere in the claim (the Hugging Face cache is), and Kubernetes would create a folder that is missing.
std::string model_folder(const Spec&, const std::string& commit);
/// The Secret with the hub's token as a file; "" and no mount without one.
std::string mount_token(Json& pod, const Spec&);
/// The image that a spec asks for, else the operator's own: of pods that take no device.
std::string image_of(const Spec&, const Settings&);
/// The operator's own image for a group, whatever the spec asks for: a plan keeps it, so that a newer operator moves no group that names none.
std::string default_group_image(const Spec&, const Settings&);

}  // namespace pm::op
