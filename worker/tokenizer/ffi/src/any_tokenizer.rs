// SPDX-License-Identifier: Apache-2.0
//! A tokenizer of either kind: fast (the tokenizers crate) or slow (a tokenizer that transformers implements in Python
//! only).
use crate::slow_tokenizer::{SlowToken, SlowTokenizer};
use crate::TxToken;
use tokenizers::{DecoderWrapper, ModelWrapper, Tokenizer};

pub enum AnyTokenizer {
    Fast(Box<Tokenizer>),
    Slow(Box<SlowTokenizer>),
}

/// Returns whether words end with "</w>", which the byte-level decoder keeps. This is so for CLIP; transformers removes
/// the suffix in its class.
pub fn ends_words(tokenizer: &Tokenizer) -> bool {
    matches!(tokenizer.get_model(), ModelWrapper::BPE(bpe) if bpe.end_of_word_suffix.as_deref() == Some("</w>"))
        && matches!(tokenizer.get_decoder(), Some(DecoderWrapper::ByteLevel(_)))
}

impl AnyTokenizer {
    pub fn ids(&self, text: &str, special: bool) -> Result<Vec<u32>, String> {
        match self {
            AnyTokenizer::Fast(t) => Ok(t
                .encode_fast(text, special)
                .map_err(|e| e.to_string())?
                .get_ids()
                .to_vec()),
            AnyTokenizer::Slow(t) => Ok(t
                .encode(text, None, special)?
                .into_iter()
                .map(|token| token.id)
                .collect()),
        }
    }

    pub fn tokens(&self, first: &str, second: Option<&str>, special: bool) -> Result<Vec<TxToken>, String> {
        let crate_ = match self {
            AnyTokenizer::Fast(t) => t,
            AnyTokenizer::Slow(t) => {
                let of = |token: SlowToken| TxToken {
                    id: token.id,
                    type_id: token.type_id,
                    begin: 0,
                    end: 0,
                    sequence: token.sequence,
                    word: -1,
                };
                return Ok(t.encode(first, second, special)?.into_iter().map(of).collect());
            }
        };
        let encoding = match second {
            None => crate_.encode(first, special),
            Some(second) => crate_.encode((first, second), special),
        }
        .map_err(|e| e.to_string())?;
        let offset = |n: usize| u32::try_from(n).map_err(|_| "the text is longer than 4 GiB".to_string());
        let mut tokens = Vec::with_capacity(encoding.len());
        for (i, id) in encoding.get_ids().iter().enumerate() {
            let (begin, end) = encoding.get_offsets()[i];
            tokens.push(TxToken {
                id: *id,
                type_id: encoding.get_type_ids()[i],
                begin: offset(begin)?,
                end: offset(end)?,
                sequence: encoding.token_to_sequence(i).map_or(-1, |s| s as i32),
                word: encoding.get_word_ids()[i].map_or(-1, |w| w as i32),
            });
        }
        // A special token belongs to no text.
        for (token, special) in tokens.iter_mut().zip(encoding.get_special_tokens_mask()) {
            if *special == 1 {
                token.sequence = -1;
            }
        }
        Ok(tokens)
    }

    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        match self {
            AnyTokenizer::Fast(t) => t.token_to_id(token),
            AnyTokenizer::Slow(t) => t.token_to_id(token),
        }
    }

    /// Returns the token of an id; empty when no token has it.
    pub fn id_to_token(&self, id: u32) -> String {
        match self {
            AnyTokenizer::Fast(t) => t.id_to_token(id).unwrap_or_default(),
            AnyTokenizer::Slow(t) => t.id_to_token(id).unwrap_or_default().to_string(),
        }
    }

    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, String> {
        match self {
            AnyTokenizer::Fast(t) => {
                let text = t.decode(ids, skip_special).map_err(|e| e.to_string())?;
                Ok(if ends_words(t) {
                    text.replace("</w>", " ").trim().to_string()
                } else {
                    text
                })
            }
            AnyTokenizer::Slow(t) => Ok(t.decode(ids, skip_special)),
        }
    }

    /// Returns whether the token ends in "@@", which a token after it removes.
    pub fn continues_word(&self, id: u32) -> bool {
        match self {
            AnyTokenizer::Fast(_) => false,
            AnyTokenizer::Slow(t) => t.continues_word(id),
        }
    }

    /// Returns how many of the first ids have a text that no later id changes, where decoding looks at the whole text.
    pub fn settled(&self, ids: &[u32]) -> Option<usize> {
        match self {
            AnyTokenizer::Fast(_) => None,
            AnyTokenizer::Slow(t) => t.settled(ids),
        }
    }

    pub fn size(&self) -> usize {
        match self {
            AnyTokenizer::Fast(t) => t.get_vocab_size(true),
            AnyTokenizer::Slow(t) => t.size(),
        }
    }
}
