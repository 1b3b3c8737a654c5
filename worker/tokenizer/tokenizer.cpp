// See tokenizer.h.
#include "worker/tokenizer/tokenizer.h"

#include "worker/base/error.h"
#include "worker/tokenizer/ffi/textops.h"

namespace pm {
namespace {

/// A buffer of the Rust side, freed with it.
struct Buffer : TxBuf {
  Buffer() : TxBuf{nullptr, 0} {}
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { tx_buf_free(*this); }
  std::string text() const { return {reinterpret_cast<const char*>(ptr), len}; }
};

struct Ids : TxIds {
  Ids() : TxIds{nullptr, 0} {}
  Ids(const Ids&) = delete;
  Ids& operator=(const Ids&) = delete;
  ~Ids() { tx_ids_free(*this); }
};

const TxTokenizer* handle_of(const std::shared_ptr<void>& handle) { return static_cast<const TxTokenizer*>(handle.get()); }

/// A refusal of the crate blames the request; a panic (status 2) blames the tokenizer.json that led to it.
void check(int status, const Buffer& error, const std::string& what) {
  if (status == 0) return;
  if (status == 1) throw Error(ErrorKind::Request, "InvalidRequest", what + ": " + error.text());
  throw Error(ErrorKind::Model, "ModelUnreadable", what + ": " + error.text());
}

}  // namespace

Tokenizer Tokenizer::open(const std::filesystem::path& folder) {
  const auto file = folder / "tokenizer.json";
  if (!std::filesystem::is_regular_file(file))
    throw Error(ErrorKind::Model, "ModelUnreadable",
                "no tokenizer.json in " + folder.string() + "; save it there with transformers' AutoTokenizer(...).save_pretrained");
  TxTokenizer* handle = nullptr;
  Buffer error;
  if (tx_tokenizer_open(file.c_str(), &handle, &error) != 0)
    throw Error(ErrorKind::Model, "ModelUnreadable", file.string() + " is no tokenizer of the tokenizers library: " + error.text());
  return Tokenizer(std::shared_ptr<void>(handle, [](void* p) { tx_tokenizer_free(static_cast<TxTokenizer*>(p)); }));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool special) const {
  Ids ids;
  Buffer error;
  check(tx_encode(handle_of(handle_), reinterpret_cast<const uint8_t*>(text.data()), text.size(), special, &ids, &error), error,
        "the text cannot be tokenized");
  return {ids.ptr, ids.ptr + ids.len};
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  Buffer text, error;
  const auto* data = reinterpret_cast<const uint32_t*>(ids.data());   // a negative id becomes one that no vocabulary has
  check(tx_decode(handle_of(handle_), data, ids.size(), skip_special, &text, &error), error, "the ids cannot be decoded");
  return text.text();
}

size_t Tokenizer::vocab_size() const {
  size_t size = 0;
  Buffer error;
  check(tx_vocab_size(handle_of(handle_), &size, &error), error, "the vocabulary cannot be counted");
  return size;
}

}  // namespace pm
