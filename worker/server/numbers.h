// Scores, vectors and how they are written.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pm::server {

std::vector<double> softmax(std::span<const float> logits);
double sigmoid(double logit);
/// To length 1; a vector of zeros stays.
void normalize(std::span<float> vector);
/// Of two vectors of the same length; 0 when one of them is all zero.
double cosine(std::span<const float> a, std::span<const float> b);

/// Indices of the `n` largest, in descending order; ties in ascending order of index.
std::vector<size_t> largest(std::span<const double> scores, size_t n);

/// Appends as a JSON array: the shortest text that reads back as the same float; null for what JSON lacks (NaN, infinities).
void append_json(std::string& to, std::span<const float> values);
void append_json(std::string& to, std::span<const int64_t> values);

std::string base64(std::span<const uint8_t> bytes);
/// RFC 4648, plain or URL-safe alphabet, padding optional, white space ignored. False when it is something else.
bool from_base64(std::string_view text, std::string& bytes);

}  // namespace pm::server
