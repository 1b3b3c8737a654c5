// SPDX-License-Identifier: Apache-2.0
//! Parses the parts of a SentencePiece model that a tokenizer needs from its protocol buffer
//! (sentencepiece_model.proto).
use std::collections::HashMap;

pub const NORMAL: u64 = 1;
pub const UNKNOWN: u64 = 2;
pub const CONTROL: u64 = 3;
pub const USER_DEFINED: u64 = 4;

pub struct Piece {
    pub text: String,
    pub score: f64,
    /// 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
    pub kind: u64,
}

pub struct SentencePiece {
    pub pieces: Vec<Piece>,
    /// 1 unigram, 2 BPE, 3 words, 4 characters
    pub model_type: u64,
    pub unk_id: usize,
    pub unk_piece: String,
    /// text of an unknown piece when decoding
    pub unk_surface: String,
    pub charsmap: Vec<u8>,
    pub byte_fallback: bool,
    pub dummy_prefix: bool,
    pub extra_whitespaces_removed: bool,
    pub whitespaces_escaped: bool,
}

enum Field<'a> {
    Number(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

/// Iterates over the fields of one message. It refuses groups, and fields that reach past the end.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: u64) -> Result<&'a [u8], String> {
        let count = usize::try_from(count)
            .ok()
            .filter(|c| *c <= self.0.len())
            .ok_or("it is cut off")?;
        let (head, tail) = self.0.split_at(count);
        self.0 = tail;
        Ok(head)
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.take(1)?[0];
            if shift < 64 {
                value |= u64::from(byte & 0x7f) << shift;
            }
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("it has a number of more than 10 bytes".into())
    }

    fn next(&mut self) -> Result<Option<(u64, Field<'a>)>, String> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let field = match key & 7 {
            0 => Field::Number(self.varint()?),
            1 => Field::Bytes(self.take(8)?),
            2 => {
                let size = self.varint()?;
                Field::Bytes(self.take(size)?)
            }
            5 => Field::Fixed32(u32::from_le_bytes(self.take(4)?.try_into().unwrap_or_default())),
            kind => return Err(format!("it has a field of wire type {kind}")),
        };
        Ok(Some((key >> 3, field)))
    }
}

fn text(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "it has a piece that is not UTF-8".to_string())
}

fn piece(message: &[u8]) -> Result<Piece, String> {
    let mut piece = Piece {
        text: String::new(),
        score: 0.0,
        kind: 1,
    };
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        match field {
            (1, Field::Bytes(bytes)) => piece.text = text(bytes)?,
            (2, Field::Fixed32(bits)) => piece.score = f64::from(f32::from_bits(bits)),
            (3, Field::Number(kind)) => piece.kind = kind,
            _ => {}
        }
    }
    Ok(piece)
}

impl SentencePiece {
    /// Reads a ModelProto. Errors say what is wrong with the file.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut model = SentencePiece {
            pieces: Vec::new(),
            model_type: 1,
            unk_id: 0,
            unk_piece: "<unk>".into(),
            unk_surface: " \u{2047} ".into(),
            charsmap: Vec::new(),
            byte_fallback: false,
            dummy_prefix: true,
            extra_whitespaces_removed: true,
            whitespaces_escaped: true,
        };
        let mut fields = Fields(bytes);
        while let Some((number, field)) = fields.next()? {
            let Field::Bytes(message) = field else { continue };
            match number {
                1 => model.pieces.push(piece(message)?),
                2 => model.read_trainer(message)?,
                3 => model.read_normalizer(message)?,
                _ => {}
            }
        }
        if model.pieces.is_empty() {
            return Err("it has no pieces, so it is no SentencePiece model".into());
        }
        if model.unk_id >= model.pieces.len() {
            return Err(format!(
                "its unknown piece is number {} of {}",
                model.unk_id,
                model.pieces.len()
            ));
        }
        Ok(model)
    }

    fn read_trainer(&mut self, message: &[u8]) -> Result<(), String> {
        let mut fields = Fields(message);
        while let Some(field) = fields.next()? {
            match field {
                (3, Field::Number(kind)) => self.model_type = kind,
                (40, Field::Number(id)) => {
                    self.unk_id = usize::try_from(id).map_err(|_| "its unknown piece has no number")?
                }
                (35, Field::Number(fallback)) => self.byte_fallback = fallback != 0,
                (44, Field::Bytes(bytes)) => self.unk_surface = text(bytes)?,
                (45, Field::Bytes(bytes)) => self.unk_piece = text(bytes)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn read_normalizer(&mut self, message: &[u8]) -> Result<(), String> {
        let mut fields = Fields(message);
        while let Some(field) = fields.next()? {
            match field {
                (2, Field::Bytes(bytes)) => self.charsmap = bytes.to_vec(),
                (3, Field::Number(flag)) => self.dummy_prefix = flag != 0,
                (4, Field::Number(flag)) => self.extra_whitespaces_removed = flag != 0,
                (5, Field::Number(flag)) => self.whitespaces_escaped = flag != 0,
                _ => {}
            }
        }
        Ok(())
    }

    pub fn scored(&self) -> Vec<(String, f64)> {
        self.pieces.iter().map(|p| (p.text.clone(), p.score)).collect()
    }

    /// Returns the BPE merges, which the model does not store: every split of a piece into two pieces, in the order of
    /// the pieces (transformers' `generate_merges`).
    pub fn merges(&self, ids: &HashMap<&str, u32>) -> Vec<(String, String)> {
        // No merge makes a piece this long in practice; without the limit a hostile file would cost quadratic time.
        const LONGEST: usize = 256;
        let mut merges = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for piece in &self.pieces {
            let whole = piece.text.as_str();
            if whole.len() > LONGEST || !seen.insert(whole) {
                continue;
            }
            let length = whole.chars().count();
            let mut splits: Vec<_> = whole
                .char_indices()
                .enumerate()
                .skip(1)
                .filter_map(|(chars, (at, _))| {
                    let (left, right) = whole.split_at(at);
                    Some((*ids.get(left)?, *ids.get(right)?, chars, left, right))
                })
                .collect();
            splits.sort_by_key(|(left, right, ..)| (*left, *right));
            merges.extend(
                splits
                    .into_iter()
                    .map(|(_, _, chars, left, right)| ((ids[whole], chars, length - chars), left, right)),
            );
        }
        merges.sort_by_key(|(order, ..)| *order);
        merges
            .into_iter()
            .map(|(_, left, right)| (left.to_string(), right.to_string()))
            .collect()
    }
}
