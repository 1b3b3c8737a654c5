// SPDX-License-Identifier: Apache-2.0
//! Reads what a checkpoint folder says about its tokenizer besides the vocabulary: tokenizer_config.json,
//! special_tokens_map.json, added_tokens.json and config.json. Rules of transformers'
//! `PreTrainedTokenizerBase._from_pretrained`.
use crate::gguf::Metadata;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tokenizers::{AddedToken, Tokenizer};

/// Limit of the size of a tokenizer file.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Roles of special tokens, in the order in which transformers adds them.
pub const ROLES: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// Default tokens of a tokenizer class, by role.
pub type Roles = &'static [(&'static str, &'static str)];

pub struct Folder {
    pub path: PathBuf,
    /// config.json
    pub config: Map<String, Value>,
    /// tokenizer_config.json, overridden by special_tokens_map.json
    pub settings: Map<String, Value>,
    /// tokens that are added to the vocabulary, by id
    pub added: BTreeMap<u64, AddedToken>,
}

/// Returns the path of the first of these files that exists.
pub fn file(folder: &Folder, names: &[&str]) -> Result<String, String> {
    let found = names
        .iter()
        .map(|name| folder.path.join(name))
        .find(|path| path.is_file());
    let path = found.ok_or_else(|| format!("none of {} exists", names.join(", ")))?;
    path.into_os_string()
        .into_string()
        .map_err(|_| "its path is not UTF-8".to_string())
}

/// Returns the default token of a role; empty when the class has none.
pub fn default_of(roles: Roles, role: &str) -> &'static str {
    roles
        .iter()
        .find(|(name, _)| *name == role)
        .map_or("", |(_, token)| token)
}

/// Reads a file of bounded size.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    let about = fs::metadata(path).map_err(|e| format!("{}: {e}", path.display()))?;
    if !about.is_file() || about.len() > MAX_FILE_BYTES {
        return Err(format!("{} is not a file of at most 256 MiB", path.display()));
    }
    fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Reads a JSON object; a missing file is an empty one.
fn object(path: &Path) -> Result<Map<String, Value>, String> {
    if !path.is_file() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(&read(path)?) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(format!("{} is not a JSON object", path.display())),
        Err(error) => Err(format!("{} is not JSON: {error}", path.display())),
    }
}

/// Parses a token from a string or from an object with its properties. `special`: whether a string is a special token.
pub fn token_of(value: &Value, special: bool) -> Option<AddedToken> {
    if let Some(text) = value.as_str() {
        return Some(AddedToken::from(text, special));
    }
    let flag = |key: &str, default| value.get(key).and_then(Value::as_bool).unwrap_or(default);
    let special = flag("special", special);
    let text = value.get("content")?.as_str()?;
    Some(
        AddedToken::from(text, special)
            .single_word(flag("single_word", false))
            .lstrip(flag("lstrip", false))
            .rstrip(flag("rstrip", false))
            .normalized(flag("normalized", !special)),
    )
}

impl Folder {
    /// Reads a folder whose GGUF file says so much of a tokenizer. The folder's own files come first.
    pub fn with_gguf(path: &Path, gguf: Option<&Metadata>) -> Result<Self, String> {
        let mut folder = Folder::read(path)?;
        for (key, value) in gguf.iter().flat_map(|metadata| &metadata.settings) {
            folder.settings.entry(key.clone()).or_insert_with(|| value.clone());
        }
        Ok(folder)
    }

    pub fn read(path: &Path) -> Result<Self, String> {
        let mut settings = object(&path.join("tokenizer_config.json"))?;
        let mut added = BTreeMap::new();
        if let Some(Value::Object(tokens)) = settings.get("added_tokens_decoder") {
            for (id, token) in tokens {
                let id = id
                    .parse()
                    .map_err(|_| format!("{}: added_tokens_decoder has the id \"{id}\"", path.display()))?;
                added.insert(
                    id,
                    token_of(token, false)
                        .ok_or_else(|| format!("{}: added_tokens_decoder[{id}] is not a token", path.display()))?,
                );
            }
        } else {
            settings.extend(object(&path.join("special_tokens_map.json"))?);
        }
        let mut folder = Folder {
            path: path.into(),
            config: object(&path.join("config.json"))?,
            settings,
            added,
        };
        if folder.added.is_empty() {
            let special: Vec<String> = folder
                .named_tokens()
                .into_iter()
                .chain(folder.extra_tokens())
                .map(|t| t.content)
                .collect();
            for (text, id) in object(&path.join("added_tokens.json"))? {
                let id = id
                    .as_u64()
                    .ok_or_else(|| format!("{}: added_tokens.json gives \"{text}\" no id", path.display()))?;
                let is_special = special.contains(&text);
                folder.added.insert(id, AddedToken::from(text, is_special));
            }
        }
        Ok(folder)
    }

    /// Returns the tokenizer's class without "Fast"; empty when no file names it.
    pub fn class(&self) -> String {
        let named = [&self.settings, &self.config]
            .into_iter()
            .find_map(|file| file.get("tokenizer_class")?.as_str());
        let class = named.unwrap_or_default();
        class.strip_suffix("Fast").unwrap_or(class).to_string()
    }

    pub fn model_type(&self) -> &str {
        self.config
            .get("model_type")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    pub fn flag(&self, key: &str, default: bool) -> bool {
        self.settings.get(key).and_then(Value::as_bool).unwrap_or(default)
    }

    /// Returns the token with this role: that of the files, else the class's default; null in a file is none.
    pub fn token(&self, role: &str, default: &str) -> Option<AddedToken> {
        let token = match self.settings.get(role) {
            Some(value) => token_of(value, true)?,
            None if default.is_empty() => return None,
            None => AddedToken::from(default, true),
        };
        let known = self
            .added
            .values()
            .find(|added| added.content == token.content)
            .cloned();
        Some(known.unwrap_or(AddedToken { special: true, ..token }))
    }

    fn named_tokens(&self) -> Vec<AddedToken> {
        ROLES.iter().filter_map(|role| self.token(role, "")).collect()
    }

    /// Returns whether the files leave the special tokens without a role to the class.
    pub fn names_no_extra_tokens(&self) -> bool {
        !["extra_special_tokens", "additional_special_tokens"]
            .iter()
            .any(|key| self.settings.contains_key(*key))
    }

    /// Returns the special tokens without a role.
    pub fn extra_tokens(&self) -> Vec<AddedToken> {
        let extra = ["extra_special_tokens", "additional_special_tokens"]
            .iter()
            .find_map(|key| self.settings.get(*key));
        match extra {
            Some(Value::Array(tokens)) => tokens.iter().filter_map(|t| token_of(t, true)).collect(),
            Some(Value::Object(tokens)) => tokens.values().filter_map(|t| token_of(t, true)).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the tokens with a role, then `extra`.
    pub fn special_tokens(&self, roles: &[(&str, &str)], extra: Vec<AddedToken>) -> Vec<AddedToken> {
        let mut special: Vec<AddedToken> = Vec::new();
        for role in ROLES {
            let default = roles
                .iter()
                .find(|(name, _)| *name == role)
                .map_or("", |(_, default)| default);
            special.extend(self.token(role, default));
        }
        special.extend(extra);
        special
    }

    /// Adds tokens as transformers does: tokens with ids, then roles, then the others. A token of the vocabulary keeps
    /// its id.
    pub fn add_tokens(
        &self,
        tokenizer: &mut Tokenizer,
        roles: &[(&str, &str)],
        extra: Vec<AddedToken>,
    ) -> Result<(), String> {
        let special = self.special_tokens(roles, extra);
        let mut tokens: Vec<AddedToken> = self.added.values().cloned().collect();
        for token in &special {
            if !tokens.iter().any(|t| t.content == token.content) {
                tokens.push(token.clone());
            }
        }
        tokenizer.add_tokens(tokens).map_err(|e| e.to_string())?;
        tokenizer
            .add_special_tokens(special.into_iter().map(|t| AddedToken { special: true, ..t }))
            .map_err(|e| e.to_string())?;
        Ok(())
    }
}
