// SPDX-License-Identifier: Apache-2.0
// Requests with images of any size, whose results are placed in the images as they were sent.
#pragma once
#include <functional>
#include <vector>

#include "worker/server/tasks/task_request.h"

namespace pm::server {

/// The pixel_values of an image, and its size before it was prepared.
struct PreparedImage {
  Array pixels;
  int64_t width = 0, height = 0;
};

struct ImageRequest {
  std::vector<PreparedImage> images;
  bool single = false;  ///< the request has one image and no array
};

/// Reads images from a body that is a file (Content-Type: image/...), or from "inputs" of a JSON body, whose other
/// fields `read_options` reads. Throws ApiError: 404 where the model does not serve the route, 400 for what is no
/// image, 413 for one that is too large.
ImageRequest read_images(const ServerContext&, const RoutedRequest&, const std::function<void(Fields&)>& read_options);

/// Reads a number from 0 to 1. Throws ApiError 400 for another value.
double read_share(Fields&, const char* name, double absent);

/// Returns the name of a class, LABEL_i where the checkpoint has none.
std::string class_label(const ServerContext&, size_t number);

/// Describes a route that takes images as JSON or as a file, with these options.
Operation images_operation(const ServerContext&, std::string summary, schema::Properties options, nlohmann::json reply);

}  // namespace pm::server
