// SPDX-License-Identifier: Apache-2.0
// The tables of a checkpoint while its quantised matrices are put together: finds parts, records which are used, and
// refuses what does not fit.
#pragma once
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "worker/checkpoint/quantized/formats.h"
#include "worker/checkpoint/quantized/scaled_codes.h"

namespace pm::checkpoint {

/// A stored tensor and the name of its element type. Bytes that nothing computes with are U8 in `info`.
struct Part {
  std::string type;
  TensorInfo info;
};

class Assembly {
 public:
  Assembly(const std::filesystem::path& folder, const nlohmann::json& config, const nlohmann::json& quantization,
           TensorTable&, UnsupportedTable&, const ReadStored&);

  const nlohmann::json& quantization() const { return quantization_; }
  const ReadStored& read() const { return read_; }
  /// Returns the names of all stored tensors that end with `ending`, sorted.
  std::vector<std::string> names(std::string_view ending) const;
  /// Returns a stored tensor, or nothing.
  std::optional<Part> find(const std::string& name) const;
  /// Returns a tensor that `of` needs; throws where the checkpoint lacks it. It counts as used.
  Part take(const std::string& name, const std::string& of);
  /// Returns the first of several spellings of a tensor that `of` needs, likewise.
  Part take_any(std::initializer_list<std::string> names, const std::string& of);
  /// Counts tensors as used where they exist: what a dense product does not need.
  void drop(std::initializer_list<std::string> names);
  /// Likewise, all tensors whose names end with one of `endings`: scales of activations and of the KV cache, which are
  /// not quantised here.
  void drop_all(std::initializer_list<std::string_view> endings);
  /// Adds a dense tensor of `shape`. Its codes have been checked against the stored bytes.
  void add(const std::string& name, const std::vector<int64_t>& shape, ScaledCodes);
  /// Throws Error{ModelUnreadable}: the tensor's name, what was found and what is expected.
  [[noreturn]] void refuse(const std::string& tensor, const std::string& what) const;
  /// Throws Error{ModelUnreadable} about the quantization_config.
  [[noreturn]] void refuse_config(const std::string& what) const;
  /// Throws unless the part has one of the types.
  void expect_type(const Part&, std::initializer_list<std::string_view> types) const;
  void expect_shape(const Part&, const std::vector<int64_t>& shape) const;
  /// Throws unless the part has two dimensions and an element; `what` names what is expected.
  void expect_matrix(const Part&, const std::string& what) const;
  /// Returns the scales of a part of one of the floating types; `table` names what bytes mean.
  ScaleMatrix scales(const Part&, int64_t rows, int64_t columns, bool each = false) const;
  /// Removes the parts that were used from the tables and adds the dense tensors.
  void finish();

 private:
  DType find_dense_type() const;
  const std::filesystem::path& folder_;
  const nlohmann::json& config_;
  const nlohmann::json& quantization_;
  TensorTable& tensors_;
  UnsupportedTable& unsupported_;
  const ReadStored& read_;
  const DType dense_type_;
  std::set<std::string> used_;
  TensorTable dense_;
};

/// Returns a shape as text: [2, 3].
std::string shape_text(const std::vector<int64_t>& shape);
/// Returns how many rows (or columns) of `size` share a scale, where `blocks` scales cover them: `stated` where that
/// many blocks follow from it, else what divides evenly. Nothing where neither does.
std::optional<int64_t> block_size(int64_t size, int64_t blocks, int64_t stated);

/// The endings of the tensors of a matrix of NVFP4 behind its module's name: codes of E2M1 [out, in / 2], a scale of
/// F8_E4M3 for each 16 columns [out, in / 16], and one F32 number by which a method multiplies or divides all scales.
struct Nvfp4Parts {
  std::string codes, scale, global;
  bool divide_by_global = false;
  std::optional<DType> rounded;  ///< as ScaledCodes::rounded
};

/// Adds the weight of a module that is stored as NVFP4. Throws for parts that do not fit.
void add_nvfp4(Assembly&, const std::string& module, const Nvfp4Parts&);

void assemble_fp8(Assembly&);
void assemble_compressed_tensors(Assembly&);
void assemble_mxfp4(Assembly&);
void assemble_gptq(Assembly&);
void assemble_awq(Assembly&);
void assemble_modelopt(Assembly&);
void assemble_bitsandbytes(Assembly&);

}  // namespace pm::checkpoint
