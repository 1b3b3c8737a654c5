// SPDX-License-Identifier: Apache-2.0
// The subcommand convert: it writes a checkpoint whose matrices are codes of four bits, so that a load with --precision
// I4 reads a quarter of the bytes and computes nothing. Codes and scales are those that such a load makes of the
// original.
#include <ATen/ATen.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/byte_size.h"
#include "contract/worker_arguments.h"
#include "worker/base/error.h"
#include "worker/checkpoint/safetensors_writer.h"
#include "worker/cli/options.h"
#include "worker/ops/quantized_matrix.h"
#include "worker/policy/resolve.h"
#include "worker/policy/tensor_slices.h"
#include "worker/tokenizer/gguf_tokenizer_files.h"

namespace pm::cli {

namespace {

namespace fs = std::filesystem;
using checkpoint::Checkpoint;
using checkpoint::TensorInfo;

constexpr int64_t group = 32;  ///< inputs that share a scale
constexpr int64_t tile_bytes = int64_t{16} << 20;
constexpr std::string_view ending = ".weight";

struct ConvertOptions {
  std::string model, policy, out, shard_size = "4Gi";
};

/// Returns the tensors that become codes: matrices [out, in] of which every parameter is held in four bits. Others stay
/// as they are: embeddings, LM heads, norms, and matrices that lie transposed or stacked.
std::set<std::string> matrices_of(const policy::Model& model) {
  std::set<std::string> chosen, others;
  for (const policy::Param* param : model.params()) {
    const TensorInfo& tensor = *param->tensor;
    const bool plain = !param->conv1d && param->members == 1 && param->diagonal_blocks == 1 &&
                       tensor.shape.size() == 2 && tensor.shape[1] % group == 0 && tensor.name.ends_with(ending);
    (plain && policy::code_bits(*param, DType::I4) == 4 ? chosen : others).insert(tensor.name);
  }
  for (const std::string& name : others) chosen.erase(name);
  return chosen;
}

std::string module_of(const std::string& weight) { return weight.substr(0, weight.size() - ending.size()); }

/// Returns the tensors in the order in which they are written; a matrix is three.
std::vector<checkpoint::WrittenTensor> written(const Checkpoint& files, const std::set<std::string>& matrices) {
  std::vector<checkpoint::WrittenTensor> out;
  for (const auto& [name, tensor] : files.tensors()) {
    if (!matrices.contains(name)) {
      out.push_back({name, std::string(name_of(tensor.dtype)), tensor.shape, tensor.bytes});
      continue;
    }
    const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    out.push_back({name + "_packed", "I32", {rows, columns / 8}, rows * columns / 2});
    out.push_back({name + "_scale", "BF16", {rows, columns / group}, rows * columns / group * 2});
    out.push_back({name + "_shape", "I64", {2}, 16});
  }
  return out;
}

/// Returns config.json with the form of the codes. `ignore` names every other matrix, as loaders of the format need it.
nlohmann::json converted_config(const Checkpoint& files, const std::set<std::string>& matrices) {
  nlohmann::json config = files.config(), dense = nlohmann::json::array();
  for (const auto& [name, tensor] : files.tensors())
    if (tensor.shape.size() == 2 && name.ends_with(ending) && !matrices.contains(name))
      dense.push_back(module_of(name));
  const nlohmann::json weights{
      {"num_bits", 4}, {"type", "int"}, {"symmetric", true}, {"strategy", "group"}, {"group_size", group}};
  config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                   {"format", "pack-quantized"},
                                   {"quantization_status", "compressed"},
                                   {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}},
                                   {"ignore", dense}};
  return config;
}

/// Moves codes from the order of a group in memory (ops::CodeLayout) to that of the format: eight in a word, the first
/// lowest. Both have 8 added.
void reorder(std::span<std::byte> codes) {
  constexpr size_t bytes = group / 2;
  for (size_t at = 0; at < codes.size(); at += bytes) {
    std::array<unsigned, group> numbers{};
    for (size_t i = 0; i < bytes; ++i) {
      numbers[i] = static_cast<unsigned>(codes[at + i]) & 15;
      numbers[bytes + i] = static_cast<unsigned>(codes[at + i]) >> 4;
    }
    for (size_t i = 0; i < bytes; ++i) codes[at + i] = static_cast<std::byte>(numbers[2 * i] | numbers[2 * i + 1] << 4);
  }
}

/// Reads a whole tensor in tiles of whole rows, and calls `use` with the bytes of each and its rows.
void for_tiles(const Checkpoint& files, const TensorInfo& tensor,
               const std::function<void(std::span<std::byte>, int64_t rows)>& use) {
  const int64_t rows = tensor.shape.empty() ? 1 : std::max<int64_t>(1, tensor.shape[0]), row = tensor.bytes / rows,
                some = std::max<int64_t>(1, tile_bytes / std::max<int64_t>(1, row));
  std::vector<std::byte> bytes;
  for (int64_t first = 0; first < rows; first += some) {
    const int64_t count = std::min(some, rows - first);
    bytes.resize(static_cast<size_t>(count * row));
    const checkpoint::Strip strip{first * row, 1, count * row, count * row};
    files.read(tensor, {&strip, 1}, bytes);
    use(bytes, count);
  }
}

at::ScalarType scalar_type(DType type) {
  return type == DType::F32 ? at::kFloat : type == DType::F16 ? at::kHalf : at::kBFloat16;
}

/// Writes codes, scales and shape of a matrix.
void write_matrix(const Checkpoint& files, const TensorInfo& tensor, checkpoint::SafetensorsWriter& out) {
  const ops::CodeLayout layout{.in = tensor.shape[1], .group = group, .bits = 4};
  std::vector<uint16_t> scales;
  for_tiles(files, tensor, [&](std::span<std::byte> bytes, int64_t rows) {
    const at::Tensor values =
        at::from_blob(bytes.data(), {rows, layout.in}, at::dtype(scalar_type(tensor.dtype))).to(at::kFloat);
    std::vector<std::byte> codes(static_cast<size_t>(rows * layout.in / 2));
    const size_t before = scales.size();
    scales.resize(before + static_cast<size_t>(rows * layout.groups()));
    if (!ops::quantize(values.const_data_ptr<float>(), rows, layout, codes.data(), scales.data() + before))
      throw Error(Reason::ModelUnreadable,
                  "tensor \"" + tensor.name + "\" has infinities or NaNs, which have no codes; leave it as it is");
    reorder(codes);
    out.write(codes);
  });
  out.write(std::as_bytes(std::span(scales)));
  out.write(std::as_bytes(std::span(tensor.shape)));
}

/// Copies the files that are no weights: tokenizer, templates, folders of modules.
void copy_others(const fs::path& from, const fs::path& to) {
  constexpr std::string_view weights[] = {
      ".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".gguf", ".h5", ".msgpack", ".onnx",
      ".pth"};
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    const bool skipped = name == "config.json" || std::any_of(std::begin(weights), std::end(weights),
                                                              [&](auto one) { return name.ends_with(one); });
    if (!skipped) fs::copy(entry.path(), to / name, fs::copy_options::recursive);
  }
}

/// Writes the tokenizer that a GGUF file has in its metadata, where the folder has no files of one.
void write_tokenizer(const fs::path& from, const fs::path& to) {
  const TokenizerFiles files = make_gguf_tokenizer_files(from);
  if (!files.why.empty()) std::cerr << "convert: no tokenizer is written: " << files.why << "\n";
  for (const auto& [name, text] :
       {std::pair{"tokenizer.json", files.tokenizer}, {"tokenizer_config.json", files.config}})
    if (!text.empty() && !fs::exists(to / name)) std::ofstream(to / name) << text;
}

void write_checkpoint(const Checkpoint& files, const std::set<std::string>& matrices, const fs::path& folder,
                      int64_t shard_bytes) {
  copy_others(files.folder(), folder);
  write_tokenizer(files.folder(), folder);
  std::ofstream(folder / "config.json") << converted_config(files, matrices).dump(2) << "\n";
  checkpoint::SafetensorsWriter out(folder, written(files, matrices), shard_bytes);
  int64_t all = 0, done = 0;
  for (const auto& [name, tensor] : files.tensors()) all += tensor.bytes;
  for (int64_t percent = -1; const auto& [name, tensor] : files.tensors()) {
    if (matrices.contains(name))
      write_matrix(files, tensor, out);
    else
      for_tiles(files, tensor, [&](std::span<std::byte> bytes, int64_t) { out.write(bytes); });
    done += tensor.bytes;
    if (const int64_t now = done * 20 / std::max<int64_t>(1, all); now > percent)
      std::cerr << "convert: " << base::format_bytes(done) << " of " << base::format_bytes(all) << "\n", percent = now;
  }
  out.finish();
}

int convert(const ConvertOptions& options) {
  const fs::path folder = fs::absolute(options.out).lexically_normal(), made = folder.string() + ".part";
  if (fs::exists(folder))
    throw Error(Reason::Usage, "--out " + options.out + " exists; name a folder that does not, in which to write");
  const Checkpoint files = Checkpoint::open(options.model);
  const policy::Model model = policy::resolve(files, options.policy);
  if (!files.unsupported().empty())
    throw Error(Reason::ModelUnreadable, "tensor \"" + files.unsupported().begin()->first + "\" has the element type " +
                                             files.unsupported().begin()->second.type +
                                             ", which cannot be written again; convert a checkpoint without it");
  const std::set<std::string> matrices = matrices_of(model);
  if (matrices.empty())
    throw Error(Reason::ModelUnreadable, model.architecture + " has no matrix [out, in] of whole groups of " +
                                             std::to_string(group) +
                                             " inputs that is stored alone; serve it with --precision I4 as it is");
  std::error_code ignored;
  fs::remove_all(made, ignored);
  try {
    fs::create_directories(made);
    write_checkpoint(files, matrices, made, parse_bytes(options.shard_size));
    fs::rename(made, folder);
  } catch (const fs::filesystem_error& error) {
    fs::remove_all(made, ignored);
    throw Error(Reason::Usage, std::string("cannot write --out ") + options.out + ": " + error.what());
  } catch (...) {
    fs::remove_all(made, ignored);
    throw;
  }
  int64_t before = 0, after = 0;
  for (const auto& [name, tensor] : files.tensors()) before += tensor.bytes;
  for (const checkpoint::WrittenTensor& tensor : written(files, matrices)) after += tensor.bytes;
  std::cout << folder.string() << ": " << matrices.size() << " matrices in four bits, "
            << files.tensors().size() - matrices.size() << " other tensors as they were, " << base::format_bytes(before)
            << " -> " << base::format_bytes(after) << "; serve it with --precision I4\n";
  return 0;
}

}  // namespace

void add_convert(CLI::App& app, Program& program) {
  auto* subcommand = app.add_subcommand(
      "convert",
      "Writes a checkpoint with matrices in four bits (compressed-tensors), of which a load reads a quarter");
  auto options = std::make_shared<ConvertOptions>();
  subcommand->add_option(flag::model.name, options->model, "Folder of a Hugging Face checkpoint")->required();
  subcommand->add_option("--out", options->out, "Folder to write, which must not exist")->required();
  subcommand->add_option(flag::policy.name, options->policy,
                         "Policy file (YAML) to use instead of the built-in policy");
  subcommand->add_option("--shard-size", options->shard_size, "Largest file of weights, e.g. 4Gi")
      ->capture_default_str();
  subcommand->callback([options, &program] { program.code = convert(*options); });
}

}  // namespace pm::cli
