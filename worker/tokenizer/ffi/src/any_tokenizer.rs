//! A tokenizer of either kind: the tokenizers crate's, or one of those that transformers has in Python only.
use crate::numbered::Numbered;
use crate::TxToken;
use tokenizers::{DecoderWrapper, ModelWrapper, Tokenizer};

pub enum Text {
    Crate(Box<Tokenizer>),
    Numbered(Box<Numbered>),
}

/// CLIP's vocabulary ends words with "</w>", which its byte-level decoder keeps; transformers' class does the rest.
fn ends_words(tokenizer: &Tokenizer) -> bool {
    matches!(tokenizer.get_model(), ModelWrapper::BPE(bpe) if bpe.end_of_word_suffix.as_deref() == Some("</w>"))
        && matches!(tokenizer.get_decoder(), Some(DecoderWrapper::ByteLevel(_)))
}

impl Text {
    pub fn ids(&self, text: &str, special: bool) -> Result<Vec<u32>, String> {
        match self {
            Text::Crate(t) => Ok(t.encode_fast(text, special).map_err(|e| e.to_string())?.get_ids().to_vec()),
            Text::Numbered(t) => Ok(t.encode(text, None, special)?.into_iter().map(|(id, _)| id).collect()),
        }
    }

    pub fn tokens(&self, first: &str, second: Option<&str>, special: bool) -> Result<Vec<TxToken>, String> {
        let crate_ = match self {
            Text::Crate(t) => t,
            Text::Numbered(t) => {
                let encoded = t.encode(first, second, special)?;
                // as transformers: what a first text alone would be is of type 0
                let alone = encoded.iter().filter(|(_, sequence)| *sequence != 1).count();
                let of = |(i, (id, sequence))| TxToken { id, type_id: u32::from(special && i >= alone), begin: 0, end: 0, sequence, word: -1 };
                return Ok(encoded.into_iter().enumerate().map(of).collect());
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
        // a special token has no place in the text
        for (token, special) in tokens.iter_mut().zip(encoding.get_special_tokens_mask()) {
            if *special == 1 {
                token.sequence = -1;
            }
        }
        Ok(tokens)
    }

    pub fn id_of(&self, token: &str) -> Option<u32> {
        match self {
            Text::Crate(t) => t.token_to_id(token),
            Text::Numbered(t) => t.id_of(token),
        }
    }

    /// Empty when no token has the id.
    pub fn spelling(&self, id: u32) -> String {
        match self {
            Text::Crate(t) => t.id_to_token(id).unwrap_or_default(),
            Text::Numbered(t) => t.spelling(id).unwrap_or_default().to_string(),
        }
    }

    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, String> {
        match self {
            Text::Crate(t) => {
                let text = t.decode(ids, skip_special).map_err(|e| e.to_string())?;
                Ok(if ends_words(t) { text.replace("</w>", " ").trim().to_string() } else { text })
            }
            Text::Numbered(t) => Ok(t.decode(ids, skip_special)),
        }
    }

    pub fn size(&self) -> usize {
        match self {
            Text::Crate(t) => t.get_vocab_size(true),
            Text::Numbered(t) => t.size(),
        }
    }
}
