// SPDX-License-Identifier: Apache-2.0
// C declarations of the functions that ffi/src/lib.rs exports. Statuses: 0 success, 1 refused with the reason in
// `error`, 2 the crate panicked.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
struct TxBuf {
  uint8_t* ptr;
  size_t len;
};
struct TxIds {
  uint32_t* ptr;
  size_t len;
};
struct TxToken {
  uint32_t id, type_id, begin, end;
  int32_t sequence, word;
};
struct TxTokens {
  TxToken* ptr;
  size_t len;
};
struct TxTokenizer;
struct TxChat;
struct TxVocabulary;
struct TxMatcher;
struct TxReplyForm;
struct TxReplyParser;

void tx_buf_free(TxBuf);
void tx_ids_free(TxIds);
void tx_tokens_free(TxTokens);
// `path`: the checkpoint's folder. `gguf`: what its GGUF file says about the tokenizer (gguf_tokenizer.h); empty where
// it has none. Status 0 with *out == nullptr: it has no tokenizer that can be built, `error` says why.
int tx_tokenizer_open(const char* path, const char* gguf, TxTokenizer** out, TxBuf* error);
// Ids of bos, eos, unk, sep, pad, cls, mask; -1 for none.
int tx_special_ids(const TxTokenizer*, const char* path, const char* gguf, int64_t out[7], TxBuf* error);
// The tokenizer.json that gives the tokenizer of a GGUF file. Status 0 with nothing in `out`: it has none, `error` says
// why.
int tx_gguf_tokenizer_json(const char* path, const char* gguf, TxBuf* out, TxBuf* error);
void tx_tokenizer_free(TxTokenizer*);
int tx_encode(const TxTokenizer*, const uint8_t* text, size_t len, bool special, TxIds* out, TxBuf* error);
int tx_encode_tokens(const TxTokenizer*, const uint8_t* first, size_t first_len, const uint8_t* second,
                     size_t second_len, bool special, TxTokens* out, TxBuf* error);
int tx_token_id(const TxTokenizer*, const uint8_t* token, size_t len, int64_t* out, TxBuf* error);
int tx_token_text(const TxTokenizer*, uint32_t id, TxBuf* out, TxBuf* error);
int tx_decode(const TxTokenizer*, const uint32_t* ids, size_t len, bool skip_special, TxBuf* out, TxBuf* error);
int tx_continues_word(const TxTokenizer*, uint32_t id, bool* out, TxBuf* error);
int tx_settled(const TxTokenizer*, const uint32_t* ids, size_t len, size_t* out, TxBuf* error);
int tx_vocab_size(const TxTokenizer*, size_t* out, TxBuf* error);
// Python's str.strip, and str.lower if `lower`.
int tx_strip(const uint8_t* text, size_t len, bool lower, TxBuf* out, TxBuf* error);
// Status 0 with *out == nullptr: the folder has no chat template.
int tx_chat_open(const char* path, const char* gguf, TxChat** out, TxBuf* error);
void tx_chat_free(TxChat*);
// `json`: {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "kwargs", "now"}.
int tx_chat_render(const TxChat*, const uint8_t* json, size_t len, TxBuf* out, TxBuf* error);
// What the constraints of a tokenizer share. Status 1: its texts are not those of its tokens one after another.
int tx_vocabulary_build(const TxTokenizer*, TxVocabulary** out, TxBuf* error);
void tx_vocabulary_free(TxVocabulary*);
// The largest id plus 1.
size_t tx_vocabulary_size(const TxVocabulary*);
// `kind`: 0 JSON Schema, 1 regular expression, 2 an array of texts in JSON, 3 Lark grammar, 4 what tx_reply_grammar
// returns. `at_start`: the text begins at nothing, where decoders drop a space. Status 1: it is not supported or too
// large, `error` says why.
int tx_matcher_compile(const TxVocabulary*, uint32_t kind, const uint8_t* text, size_t len, bool at_start,
                       TxMatcher** out, TxBuf* error);
void tx_matcher_free(TxMatcher*);
int tx_matcher_fork(const TxMatcher*, TxMatcher** out, TxBuf* error);
// Bit id % 32 of words[id / 32]: the id may come next. Status 1: none may, or the limit of one mask is reached.
int tx_matcher_mask(TxMatcher*, const TxVocabulary*, uint32_t* words, size_t count, bool* may_end, TxBuf* error);
// `ended`: nothing may follow the token. Status 1: the token is not allowed.
int tx_matcher_append(TxMatcher*, const TxVocabulary*, uint32_t id, bool* ended, TxBuf* error);
// `response_template` of the folder's tokenizer_config.json; empty where it has none.
int tx_response_template(const char* path, TxBuf* out, TxBuf* error);
// `template_json`: the checkpoint's own; where it is empty, the form `family` of src/reply/forms.json.
int tx_reply_open(const uint8_t* template_json, size_t len, const char* family, TxReplyForm** out, TxBuf* error);
void tx_reply_free(TxReplyForm*);
// The response template of a form as JSON; the names of all forms for an empty name.
int tx_reply_form_json(const char* name, TxBuf* out, TxBuf* error);
// `request`: {"prompt", "reasoning"} with {"kind", "text"} of a constraint, {"tools", "parallel"}, or both.
int tx_reply_grammar(const TxReplyForm*, const TxVocabulary*, const uint8_t* request, size_t len, TxBuf* out,
                     TxBuf* error);
// `tools`: those of the request, by which arguments are cast. `calls`: calls are parsed; else they are content.
int tx_parser_begin(const TxReplyForm*, const uint8_t* prompt, size_t prompt_len, const uint8_t* tools,
                    size_t tools_len, bool calls, TxReplyParser** out, TxBuf* error);
void tx_parser_free(TxReplyParser*);
// Returns whether the text so far ends in reasoning.
bool tx_parser_is_reasoning(const TxReplyParser*);
// `text`: more of the reply, where a special token stands between two bytes 0xFF. `ends`: it is the last. `out`: JSON,
// [["content", text], ["reasoning", text], ["call", index, name], ["arguments", index, text]].
int tx_parser_feed(TxReplyParser*, const uint8_t* text, size_t len, bool ends, TxBuf* out, TxBuf* error);
}
