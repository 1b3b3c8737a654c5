// What ffi/src/lib.rs exports. Statuses: 0 done, 1 refused with the reason in `error`, 2 the crate panicked.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
struct TxBuf { uint8_t* ptr; size_t len; };
struct TxIds { uint32_t* ptr; size_t len; };
struct TxTokenizer;

void tx_buf_free(TxBuf);
void tx_ids_free(TxIds);
int tx_tokenizer_open(const char* path, TxTokenizer** out, TxBuf* error);
void tx_tokenizer_free(TxTokenizer*);
int tx_encode(const TxTokenizer*, const uint8_t* text, size_t len, bool special, TxIds* out, TxBuf* error);
int tx_decode(const TxTokenizer*, const uint32_t* ids, size_t len, bool skip_special, TxBuf* out, TxBuf* error);
int tx_vocab_size(const TxTokenizer*, size_t* out, TxBuf* error);
}
