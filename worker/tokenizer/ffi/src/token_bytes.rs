// SPDX-License-Identifier: Apache-2.0
//! The bytes that each token adds to a text, which constraints are matched against.
use crate::any_tokenizer::AnyTokenizer;
use std::collections::HashMap;
use std::sync::OnceLock;
use tokenizers::{DecoderWrapper, Tokenizer};

/// Longer tokens, such as runs of a thousand spaces, are never allowed; the trie bounds its depth.
const MAX_TOKEN_BYTES: usize = 512;

pub struct TokenBytes {
    /// The bytes of each id inside a text; empty for an id that no constraint allows. Special tokens begin with 0xFF,
    /// which no text has.
    pub bytes: Vec<Vec<u8>>,
    /// Whether the id has these bytes at the beginning of a text too, where decoders drop a space.
    pub begins_text: Vec<bool>,
}

/// How a decoder spells tokens that are a part of a character only.
#[derive(Clone, Copy, Default)]
struct Spelling {
    byte_level: bool,
    byte_fallback: bool,
}

/// Returns the spelling of a decoder whose texts are the texts of their tokens one after another; `fused`: a decoder
/// before this one has joined the tokens.
fn spelling(decoder: &DecoderWrapper, fused: &mut bool) -> Result<Spelling, String> {
    let mut found = Spelling::default();
    match decoder {
        DecoderWrapper::ByteLevel(_) => found.byte_level = true,
        DecoderWrapper::ByteFallback(_) => found.byte_fallback = true,
        DecoderWrapper::Fuse(_) => *fused = true,
        DecoderWrapper::Metaspace(_) | DecoderWrapper::WordPiece(_) => {}
        DecoderWrapper::Strip(strip) if strip.stop == 0 => {}
        DecoderWrapper::Replace(_) if !*fused => {}
        DecoderWrapper::Sequence(parts) => {
            for part in parts.get_decoders() {
                let one = spelling(part, fused)?;
                found.byte_level |= one.byte_level;
                found.byte_fallback |= one.byte_fallback;
            }
        }
        _ => return Err("its decoder changes the text of a token by the tokens after it".into()),
    }
    Ok(found)
}

/// The byte of each character by which byte-level vocabularies spell bytes (GPT-2's table).
fn byte_of(character: char) -> Option<u8> {
    static TABLE: OnceLock<HashMap<char, u8>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut shifted = 0;
        let mut table = HashMap::new();
        for byte in 0..=255u8 {
            let shown = matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
            let code = if shown {
                u32::from(byte)
            } else {
                shifted += 1;
                255 + shifted
            };
            table.extend(char::from_u32(code).map(|c| (c, byte)));
        }
        table
    });
    table.get(&character).copied()
}

fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// Returns the bytes of a token that is a part of a character.
fn part_of_character(token: &str, spelling: Spelling) -> Option<Vec<u8>> {
    if spelling.byte_level {
        return token.chars().map(byte_of).collect();
    }
    fallback_byte(token).filter(|_| spelling.byte_fallback).map(|b| vec![b])
}

fn special_name(token: &str) -> Vec<u8> {
    let named = if token.starts_with('<') && token.ends_with('>') {
        token.to_string()
    } else {
        format!("<{token}>")
    };
    [&[0xFF], named.as_bytes()].concat()
}

/// Returns the bytes of the tokens, as `decode` shows them. The decoder decodes each token, so that none has other
/// bytes here than in an answer.
pub fn token_bytes(tokenizer: &AnyTokenizer) -> Result<TokenBytes, String> {
    let AnyTokenizer::Fast(fast) = tokenizer else {
        return Err("it decodes a text as a whole".into());
    };
    if crate::any_tokenizer::ends_words(fast) {
        return Err("its decoder changes the text of a token by the tokens after it".into());
    }
    let spelling = match fast.get_decoder() {
        Some(decoder) => spelling(decoder, &mut false)?,
        None => Spelling::default(),
    };
    let vocabulary = fast.get_vocab(true);
    let size = vocabulary.values().max().map_or(0, |id| *id as usize + 1);
    let anchor = *tokenizer
        .ids("a", false)?
        .last()
        .ok_or("it has no token for the letter a")?;
    let before = tokenizer.decode(&[anchor], false)?;
    let mut made = TokenBytes {
        bytes: vec![Vec::new(); size],
        begins_text: vec![false; size],
    };
    for id in 0..size as u32 {
        let (bytes, begins) = bytes_of(fast, tokenizer, id, anchor, &before, spelling)?;
        if bytes.len() <= MAX_TOKEN_BYTES {
            made.bytes[id as usize] = bytes;
            made.begins_text[id as usize] = begins;
        }
    }
    drop_duplicates(fast, &mut made);
    Ok(made)
}

fn bytes_of(
    fast: &Tokenizer,
    tokenizer: &AnyTokenizer,
    id: u32,
    anchor: u32,
    before: &str,
    spelling: Spelling,
) -> Result<(Vec<u8>, bool), String> {
    let Some(token) = fast.id_to_token(id) else {
        return Ok((Vec::new(), false));
    };
    if fast.get_added_vocabulary().is_special_token(&token) {
        return Ok((special_name(&token), false));
    }
    let both = tokenizer.decode(&[anchor, id], false)?;
    // Where the anchor is a byte, one that is a part of a character spoils it.
    if let Some(piece) = both.strip_prefix(before) {
        if !piece.contains(char::REPLACEMENT_CHARACTER) {
            let begins = tokenizer.decode(&[id], false)? == piece;
            return Ok((piece.as_bytes().to_vec(), begins));
        }
    }
    Ok(part_of_character(&token, spelling).map_or((Vec::new(), false), |bytes| (bytes, true)))
}

/// Keeps one token of several with the same bytes: the trie holds one, and a token of its own is better than the byte
/// that stands in for it.
fn drop_duplicates(fast: &Tokenizer, made: &mut TokenBytes) {
    let mut first: HashMap<Vec<u8>, usize> = HashMap::new();
    for id in 0..made.bytes.len() {
        if made.bytes[id].is_empty() {
            continue;
        }
        let Some(other) = first.insert(made.bytes[id].clone(), id) else {
            continue;
        };
        let stands_in = |id: usize| fast.id_to_token(id as u32).is_some_and(|t| fallback_byte(&t).is_some());
        let dropped = if stands_in(other) { other } else { id };
        if dropped == id {
            first.insert(made.bytes[id].clone(), other);
        }
        made.bytes[dropped] = Vec::new();
    }
}
