// SPDX-License-Identifier: Apache-2.0
//! C ABI of constraints, as that of tokenizers in lib.rs.
use crate::any_tokenizer::AnyTokenizer;
use crate::constraint::{TokenMatcher, Vocabulary};
use crate::{guard, slice, TxBuf};

/// Makes the vocabulary that the constraints of a tokenizer share.
/// # Safety
/// `tokenizer` is open; `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn tx_vocabulary_build(
    tokenizer: *const AnyTokenizer,
    out: *mut *mut Vocabulary,
    error: *mut TxBuf,
) -> i32 {
    guard(error, || {
        *out = Box::into_raw(Box::new(Vocabulary::build(&*tokenizer)?));
        Ok(())
    })
}

/// # Safety
/// `vocabulary` comes from `tx_vocabulary_build`, is freed once and no longer in use.
#[no_mangle]
pub unsafe extern "C" fn tx_vocabulary_free(vocabulary: *mut Vocabulary) {
    if !vocabulary.is_null() {
        drop(Box::from_raw(vocabulary));
    }
}

/// Returns the largest id plus 1.
/// # Safety
/// `vocabulary` is open.
#[no_mangle]
pub unsafe extern "C" fn tx_vocabulary_size(vocabulary: *const Vocabulary) -> usize {
    (*vocabulary).size()
}

/// Compiles a constraint (`Vocabulary::compile`).
/// # Safety
/// `vocabulary` is open, `text` has `len` readable bytes, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn tx_matcher_compile(
    vocabulary: *const Vocabulary,
    kind: u32,
    text: *const u8,
    len: usize,
    at_start: bool,
    out: *mut *mut TokenMatcher,
    error: *mut TxBuf,
) -> i32 {
    guard(error, || {
        let text = std::str::from_utf8(slice(text, len)).map_err(|e| e.to_string())?;
        *out = Box::into_raw(Box::new((*vocabulary).compile(kind, text, at_start)?));
        Ok(())
    })
}

/// # Safety
/// `matcher` comes from this library, is freed once and no longer in use.
#[no_mangle]
pub unsafe extern "C" fn tx_matcher_free(matcher: *mut TokenMatcher) {
    if !matcher.is_null() {
        drop(Box::from_raw(matcher));
    }
}

/// Copies a matcher with its state.
/// # Safety
/// `matcher` is open and used by no other thread; `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn tx_matcher_fork(
    matcher: *const TokenMatcher,
    out: *mut *mut TokenMatcher,
    error: *mut TxBuf,
) -> i32 {
    guard(error, || {
        *out = Box::into_raw(Box::new((*matcher).fork()));
        Ok(())
    })
}

/// Writes the ids that may come next (`TokenMatcher::mask`).
/// # Safety
/// `matcher` is of `vocabulary` and used by no other thread, `words` has `count` writable words, `may_end` and `error`
/// are writable.
#[no_mangle]
pub unsafe extern "C" fn tx_matcher_mask(
    matcher: *mut TokenMatcher,
    vocabulary: *const Vocabulary,
    words: *mut u32,
    count: usize,
    may_end: *mut bool,
    error: *mut TxBuf,
) -> i32 {
    guard(error, || {
        let words = if count == 0 {
            &mut []
        } else {
            std::slice::from_raw_parts_mut(words, count)
        };
        *may_end = (*matcher).mask(&*vocabulary, words)?;
        Ok(())
    })
}

/// Appends a token (`TokenMatcher::append`).
/// # Safety
/// `matcher` is of `vocabulary` and used by no other thread; `ended` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn tx_matcher_append(
    matcher: *mut TokenMatcher,
    vocabulary: *const Vocabulary,
    id: u32,
    ended: *mut bool,
    error: *mut TxBuf,
) -> i32 {
    guard(error, || {
        *ended = (*matcher).append(&*vocabulary, id)?;
        Ok(())
    })
}
