// SPDX-License-Identifier: Apache-2.0
//! Builds the tokenizer of Japanese BERT from vocab.txt or spiece.model (`japanese_splitter.rs` splits the text).
use super::*;
use crate::japanese_splitter::{has_sentencepiece_vocabulary, sentencepiece, JapaneseSplitter};
use crate::word_splitter::line_vocabulary;

impl SlowTokenizer {
    pub fn japanese(folder: &Folder, roles: Roles) -> Result<Self, String> {
        let Vocabulary { ids, tokens } = if has_sentencepiece_vocabulary(folder) {
            let pieces = sentencepiece(folder)?.pieces.into_iter().map(|piece| piece.text);
            let pieces: Vec<String> = pieces.collect();
            Vocabulary {
                ids: pieces.iter().cloned().zip(0..).collect(),
                tokens: (0..).zip(pieces).collect(),
            }
        } else {
            line_vocabulary(folder, "vocab.txt")?
        };
        let special = folder
            .special_tokens(roles, folder.extra_tokens())
            .into_iter()
            .map(|token| token.content)
            .collect();
        let splitter = JapaneseSplitter::new(folder, special, named(folder, roles, "unk_token")?)?;
        let mut made = Self::new(
            folder,
            roles,
            Splitter::Japanese(Box::new(splitter)),
            ids,
            HashMap::new(),
        )?;
        made.tokens = tokens;
        let (cls, sep) = (
            made.special_role(folder, roles, "cls_token")?,
            made.special_role(folder, roles, "sep_token")?,
        );
        made.template = Template {
            prefix: vec![cls],
            between: vec![sep],
            suffix: vec![sep],
            typed: true,
        };
        Ok(made)
    }
}
