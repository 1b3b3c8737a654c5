// SPDX-License-Identifier: Apache-2.0
//! Encodes and decodes text with a SentencePiece model, as the SentencePiece library does. Rules of its `normalizer.cc`
//! and `sentencepiece_processor.cc`; the search itself is the tokenizers crate's.
use crate::sentencepiece::{SentencePiece, CONTROL, NORMAL, UNKNOWN, USER_DEFINED};
use std::collections::HashMap;
use tokenizers::models::{bpe::BPE, unigram::Unigram};
use tokenizers::{Model, ModelWrapper};

const SPACE: &str = "▁";

/// The normalizer's map of text prefixes to replacements: a double array (Darts-clone) over their bytes, then the
/// replacement texts.
struct CharacterMap {
    units: Vec<u32>,
    texts: Vec<u8>,
}

impl CharacterMap {
    fn parse(blob: &[u8]) -> Result<Self, String> {
        if blob.is_empty() {
            return Ok(CharacterMap {
                units: Vec::new(),
                texts: Vec::new(),
            });
        }
        let size = blob
            .get(..4)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize);
        let cut = size
            .and_then(|size| size.checked_add(4))
            .filter(|cut| *cut <= blob.len())
            .ok_or("the character map is cut off")?;
        let units = blob[4..cut]
            .chunks_exact(4)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect();
        Ok(CharacterMap {
            units,
            texts: blob[cut..].to_vec(),
        })
    }

    /// Returns the longest prefix of `text` that is replaced: its bytes, and where its replacement begins.
    fn longest(&self, text: &[u8]) -> Option<(usize, usize)> {
        let offset = |unit: u32| ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
        let mut place = offset(*self.units.first()?);
        let mut found = None;
        for (i, byte) in text.iter().enumerate() {
            place ^= usize::from(*byte);
            let Some(unit) = self.units.get(place) else { break };
            if unit & ((1 << 31) | 0xff) != u32::from(*byte) {
                break;
            }
            place ^= offset(*unit);
            if (unit >> 8) & 1 == 1 {
                let Some(value) = self.units.get(place) else { break };
                found = Some((i + 1, (value & ((1 << 31) - 1)) as usize));
            }
        }
        found
    }

    fn text(&self, begin: usize) -> String {
        let bytes = self.texts.get(begin..).unwrap_or_default();
        String::from_utf8_lossy(&bytes[..bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len())]).into_owned()
    }
}

pub struct SentencePieceProcessor {
    map: CharacterMap,
    model: ModelWrapper,
    kinds: HashMap<String, u64>,
    pieces: Vec<String>,
    /// user-defined pieces, which are not normalized, the longest first
    defined: Vec<String>,
    unk_surface: String,
    dummy_prefix: bool,
    extra_whitespaces_removed: bool,
    whitespaces_escaped: bool,
}

impl SentencePieceProcessor {
    pub fn new(model: SentencePiece) -> Result<Self, String> {
        if model.byte_fallback {
            return Err(
                "its SentencePiece model falls back to bytes, which is not built for a vocabulary of its own".into(),
            );
        }
        let normal: Vec<(&str, f64)> = model
            .pieces
            .iter()
            .filter(|p| p.kind == NORMAL)
            .map(|p| (p.text.as_str(), p.score))
            .collect();
        let built = match model.model_type {
            1 => {
                // No text contains the unknown piece.
                let vocab = std::iter::once(("\0".to_string(), 0.0))
                    .chain(normal.iter().map(|(text, score)| (text.to_string(), *score)))
                    .collect();
                Unigram::from(vocab, Some(0), false)
                    .map(ModelWrapper::from)
                    .map_err(|e| e.to_string())?
            }
            2 => {
                let ids: HashMap<&str, u32> = normal.iter().zip(1..).map(|((text, _), id)| (*text, id)).collect();
                let vocab: ahash::AHashMap<String, u32> = ids
                    .iter()
                    .map(|(text, id)| (text.to_string(), *id))
                    .chain([("\0".to_string(), 0)])
                    .collect();
                let bpe = BPE::builder()
                    .vocab_and_merges(vocab, model.merges(&ids))
                    .unk_token("\0".into())
                    .fuse_unk(true);
                bpe.build().map(ModelWrapper::from).map_err(|e| e.to_string())?
            }
            kind => {
                return Err(format!(
                    "its SentencePiece model is of type {kind}, expected 1 (unigram) or 2 (BPE)"
                ))
            }
        };
        let mut defined: Vec<String> = model
            .pieces
            .iter()
            .filter(|p| p.kind == USER_DEFINED && !p.text.is_empty())
            .map(|p| p.text.clone())
            .collect();
        defined.sort_by_key(|text| std::cmp::Reverse(text.len()));
        Ok(SentencePieceProcessor {
            map: CharacterMap::parse(&model.charsmap)?,
            model: built,
            kinds: model.pieces.iter().map(|p| (p.text.clone(), p.kind)).collect(),
            pieces: model.pieces.into_iter().map(|p| p.text).collect(),
            defined,
            unk_surface: model.unk_surface,
            dummy_prefix: model.dummy_prefix,
            extra_whitespaces_removed: model.extra_whitespaces_removed,
            whitespaces_escaped: model.whitespaces_escaped,
        })
    }

    pub fn piece(&self, id: u32) -> Option<&str> {
        self.pieces.get(id as usize).map(String::as_str)
    }

    /// Normalizes the first unit of a text; returns its replacement and the bytes consumed.
    fn step(&self, text: &str) -> (String, usize) {
        if let Some(kept) = self.defined.iter().find(|kept| text.starts_with(kept.as_str())) {
            return (kept.clone(), kept.len());
        }
        if let Some((length, begin)) = self
            .map
            .longest(text.as_bytes())
            .filter(|(length, _)| text.is_char_boundary(*length))
        {
            return (self.map.text(begin), length);
        }
        let first = text.chars().next().map(String::from).unwrap_or_default();
        let length = first.len();
        (first, length)
    }

    fn normalized(&self, mut text: &str) -> String {
        let space = if self.whitespaces_escaped { SPACE } else { " " };
        while self.extra_whitespaces_removed && !text.is_empty() {
            let (becomes, length) = self.step(text);
            if becomes != " " {
                break;
            }
            text = &text[length..];
        }
        let mut out = String::new();
        if text.is_empty() {
            return out;
        }
        if self.dummy_prefix {
            out.push_str(space);
        }
        let mut after_space = self.extra_whitespaces_removed;
        while !text.is_empty() {
            let (becomes, length) = self.step(text);
            let shown = if after_space {
                becomes.trim_start_matches(' ')
            } else {
                &becomes
            };
            if !shown.is_empty() {
                out.push_str(&shown.replace(' ', space));
                after_space = shown.ends_with(' ');
            }
            after_space &= self.extra_whitespaces_removed;
            text = &text[length..];
        }
        while self.extra_whitespaces_removed && out.ends_with(space) {
            out.truncate(out.len() - space.len());
        }
        out
    }

    /// Splits a text into pieces; adjacent characters without a piece form one piece.
    pub fn encode(&self, text: &str) -> Result<Vec<String>, String> {
        let text = self.normalized(text);
        let (mut begin, mut at) = (0, 0);
        let mut parts: Vec<(usize, usize, bool)> = Vec::new();
        while at < text.len() {
            if let Some(kept) = self.defined.iter().find(|kept| text[at..].starts_with(kept.as_str())) {
                parts.extend([(begin, at, false), (at, at + kept.len(), true)]);
                at += kept.len();
                begin = at;
            } else {
                at += text[at..].chars().next().map_or(1, char::len_utf8);
            }
        }
        parts.push((begin, text.len(), false));
        let mut all = Vec::new();
        for (begin, end, kept) in parts {
            if kept {
                all.push(text[begin..end].to_string());
            } else if begin < end {
                let tokens = self.model.tokenize(&text[begin..end]).map_err(|e| e.to_string())?;
                all.extend(
                    tokens
                        .iter()
                        .map(|t| text[begin + t.offsets.0..begin + t.offsets.1].to_string()),
                );
            }
        }
        Ok(all)
    }

    /// Joins pieces to text: the first loses its leading space; an unknown piece stays as it is.
    pub fn decode<'a>(&self, pieces: impl IntoIterator<Item = &'a str>) -> String {
        let mut out = String::new();
        let (mut at_start, mut space_seen) = (true, false);
        for piece in pieces {
            if space_seen || !out.is_empty() {
                at_start = false;
            }
            space_seen = false;
            match self.kinds.get(piece) {
                Some(&CONTROL) => {}
                Some(&UNKNOWN) => out.push_str(&self.unk_surface),
                None => out.push_str(piece),
                Some(_) => {
                    let mut shown = piece;
                    if at_start && (self.dummy_prefix || self.extra_whitespaces_removed) {
                        if let Some(rest) = piece.strip_prefix(SPACE) {
                            shown = rest;
                            space_seen = !self.extra_whitespaces_removed;
                        }
                    }
                    out.push_str(&shown.replace(SPACE, " "));
                }
            }
        }
        out
    }
}
