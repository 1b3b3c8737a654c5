// Facts: what the planner has to know of a checkpoint, and nothing else. `inspect` writes them, the controller stores them.
#pragma once
#include <compare>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/dtype.h"

namespace pm {

/// What a parameter is dealt by when a stack is cut over ranks. None: every rank holds the whole. Kv: the kv heads that a rank attends to, and
/// whose keys and values it keeps; a head that several ranks share is with each of them. KvRows: rows of the matrices that make those keys and
/// values, kv heads x head_dim; of a head that several ranks share each holds its part.
enum class Axis : uint8_t { None, Heads, Kv, KvRows, Ffn, Vocab, Positions, Groups };

/// "heads", "kv", ... as in facts and plans.
std::string_view name_of(Axis);
std::optional<Axis> axis_of(std::string_view);

/// Places of parameters outside the layers of a stack: tables, norm and projection before the first layer; final norm and pooler after the last.
constexpr int stack_input = -1, stack_output = -2;

/// Another place that reads the storage of a part: a tied head, a decoder's token table, layers that are run again (ALBERT).
struct Use {
  std::string stack;             ///< "" for heads of the model
  int first = stack_input;       ///< layers first, first + every, ... (count of them), or stack_input, stack_output; stack_input for heads
  int count = 1, every = 1;
  auto operator<=>(const Use&) const = default;
};

/// Of the elements of a part those that int8 holds as numbers with scales: matrices that are multiplied. A scale is of one output and `int8_group` inputs; groups
/// begin anew at each head where inputs are cut by heads whose size is no multiple of it, and then are as large as a head.
struct Quantised {
  int64_t elements = 0;          ///< per unit
  int64_t scales = 0;            ///< per unit
  int64_t block_scales = 0;      ///< per int8_group units: where units are inputs (FFN columns of what goes down again)
  bool operator==(const Quantised&) const = default;
};
constexpr int64_t int8_group = 32, scale_bytes = 2;

/// A group of parameters of one stack that are cut alike. Bytes of a rank: held_bytes().
struct Part {
  std::string stack;             ///< "decoder", "encoder", "vision", ... ; "" for what belongs to none (heads of the model)
  int first = 0;                 ///< first layer this row stands for; stack_input or stack_output outside the layers; stack_input for heads
  int count = 1;                 ///< how many layers have exactly this row
  Axis axis = Axis::None;
  int64_t units = 1;             ///< heads, kv heads, rows of kv heads, FFN columns, vocabulary rows, rows of a position table, groups; 1 for Axis::None
  int64_t elements_per_unit = 0; ///< per layer
  DType dtype = DType::F32;      ///< as stored, or the one that the loader keeps (T5 wo in fp16 checkpoints)
  bool keep = false;             ///< precision of the plan does not change dtype
  std::vector<Use> also = {};    ///< the places beside this one that read the same storage; a part that has some stands for one place (count 1)
  Quantised quantised = {};      ///< nothing where keep
  bool operator==(const Part&) const = default;
};

/// Sizes of a stack that fix KV and activation memory.
struct StackFacts {
  std::string name;
  int layers = 0;
  int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0, positions = 0;
  bool causal = false;           ///< holds a KV cache of its own tokens
  bool cross = false;            ///< also holds cross-attention keys and values of the encoder
  bool operator==(const StackFacts&) const = default;
};

/// At most 4,096 bytes as JSON, so that they fit a termination message.
struct Facts {
  std::string model_type;        ///< config.json's model_type
  std::string architecture;      ///< class name: GPT2LMHeadModel
  std::string task;              ///< generate, embed, classify, fill-mask, ...
  DType dtype = DType::F32;      ///< of most bytes of the checkpoint
  int64_t parameters = 0;        ///< elements, shared storage counted once
  int64_t checkpoint_bytes = 0;  ///< of the tensors that are loaded
  std::vector<StackFacts> stacks;
  std::vector<Part> parts;
  std::string revision;          ///< hf:// only
  bool operator==(const Facts&) const = default;
};

/// What parameters are held in that are not quantised, and keys and values: `precision`, or beside I8 the checkpoint's type where that is served, else fp32.
DType compute_type(const Facts&, DType precision);
/// Bytes of `units` units of the part, in one layer: units x elements x size_of(type), of int8 one byte an element and its scales.
int64_t held_bytes(const Facts&, const Part&, int64_t units, DType precision);

/// Facts as compact JSON (short keys, <= 4,096 bytes for every supported family).
nlohmann::json to_json(const Facts&);
/// Parses facts as hostile input: every count bounded, unknown keys ignored. Throws std::invalid_argument that names the key.
Facts facts_from_json(const nlohmann::json&);

}  // namespace pm
