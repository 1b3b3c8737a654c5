// SPDX-License-Identifier: Apache-2.0
//! Builds the tokenizer of whole words (Transformer-XL) from vocab.txt, a token in each line, or vocab.pkl.
use super::*;
use crate::pickled_vocabulary::{self, WordList};
use crate::whole_words::WholeWords;
use crate::word_splitter::first_words;

/// What stands for unknown words, in the order in which transformers looks for it in a file of each kind.
const UNKNOWN: [&str; 2] = ["<UNK>", "<unk>"];

/// Returns the additional special tokens that the class has where the files name none.
pub fn default_extra_tokens() -> Vec<AddedToken> {
    vec![AddedToken::from("<formula>", true)]
}

impl SlowTokenizer {
    pub fn whole_words(folder: &Folder, roles: Roles) -> Result<Self, String> {
        let code = folder.settings.get("language").and_then(Value::as_str).unwrap_or("en");
        let language = Language::parse(code)
            .ok_or_else(|| format!("tokenizer_config.json has language \"{code}\", expected en, de, fr or ru"))?;
        if folder
            .settings
            .get("delimiter")
            .is_some_and(|delimiter| delimiter == "")
        {
            return Err("tokenizer_config.json has an empty delimiter, by which each character is a token".into());
        }
        let WordList { tokens, ids, unk } = Self::whole_vocabulary(folder)?;
        let unk = unk.ok_or("its vocabulary has neither <unk> nor <UNK>")?;
        let mut extra = folder.extra_tokens();
        if folder.names_no_extra_tokens() {
            extra.extend(default_extra_tokens());
        }
        let special = folder.special_tokens(roles, extra);
        let never_split = match folder.settings.get("never_split") {
            Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).map(str::to_string).collect(),
            _ => special.iter().map(|token| token.content.clone()).collect::<Vec<_>>(),
        };
        let splitter = WholeWords::new(language, folder.flag("lower_case", false), &never_split)?;
        let mut made = Self::new(
            folder,
            roles,
            Splitter::WholeWords(Box::new(splitter)),
            ids,
            HashMap::new(),
        )?;
        made.tokens = (0..).zip(tokens).collect();
        made.unk = unk;
        Ok(made)
    }

    /// Reads the vocabulary; vocab.txt counts before vocab.pkl.
    fn whole_vocabulary(folder: &Folder) -> Result<WordList, String> {
        if folder.path.join("vocab.txt").is_file() {
            let tokens = first_words(folder, "vocab.txt")?;
            let ids: HashMap<String, u32> = tokens.iter().cloned().zip(0..).collect();
            let unk = UNKNOWN.iter().find_map(|name| ids.get(*name).copied());
            return Ok(WordList { tokens, ids, unk });
        }
        let path = file(folder, &["vocab.pkl"])?;
        let mut list = pickled_vocabulary::read(&read(path.as_ref())?).map_err(|e| format!("{path} {e}"))?;
        let named = UNKNOWN.iter().rev().find_map(|name| list.ids.get(*name).copied());
        list.unk = list.unk.or(named);
        Ok(list)
    }
}
