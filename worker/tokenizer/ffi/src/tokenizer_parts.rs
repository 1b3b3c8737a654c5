// SPDX-License-Identifier: Apache-2.0
//! What the builders of tokenizers share: components as tokenizer.json spells them, and templates of special tokens.
use crate::folder::{default_of, Folder, Roles};
use serde::de::DeserializeOwned;
use serde_json::{json, Value};
use tokenizers::{
    AddedToken, DecoderWrapper, ModelWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, Tokenizer,
};

/// Parses a component as tokenizer.json spells it.
pub fn part<T: DeserializeOwned>(spelled: Value) -> Result<T, String> {
    serde_json::from_value(spelled).map_err(|e| e.to_string())
}

/// The components of a tokenizer; pre-tokenizer and decoder as tokenizer.json spells them.
pub struct Parts {
    pub model: ModelWrapper,
    pub normalizer: Option<NormalizerWrapper>,
    pub pre_tokenizer: Value,
    pub decoder: Value,
}

pub fn assembled(parts: Parts) -> Result<Tokenizer, String> {
    let mut tokenizer = Tokenizer::new(parts.model);
    tokenizer.with_normalizer(parts.normalizer).map_err(|e| e.to_string())?;
    tokenizer.with_pre_tokenizer(Some(part::<PreTokenizerWrapper>(parts.pre_tokenizer)?));
    tokenizer.with_decoder(Some(part::<DecoderWrapper>(parts.decoder)?));
    Ok(tokenizer)
}

pub fn named(folder: &Folder, roles: Roles, role: &str) -> Result<String, String> {
    folder
        .token(role, default_of(roles, role))
        .map(|t| t.content)
        .ok_or_else(|| format!("it has no {role}"))
}

pub fn id_of(tokenizer: &Tokenizer, token: &str) -> Result<u32, String> {
    tokenizer
        .token_to_id(token)
        .ok_or_else(|| format!("the vocabulary lacks \"{token}\""))
}

/// Sets a template of "A", "B" and special tokens, each with its type id.
pub fn template(tokenizer: &mut Tokenizer, single: &[(&str, u32)], pair: &[(&str, u32)]) -> Result<(), String> {
    let mut special = serde_json::Map::new();
    let mut spelled = |items: &[(&str, u32)]| -> Result<Vec<Value>, String> {
        items
            .iter()
            .map(|(name, kind)| {
                if *name == "A" || *name == "B" {
                    return Ok(json!({"Sequence": {"id": name, "type_id": kind}}));
                }
                special.insert(
                    name.to_string(),
                    json!({"id": name, "ids": [id_of(tokenizer, name)?], "tokens": [name]}),
                );
                Ok(json!({"SpecialToken": {"id": name, "type_id": kind}}))
            })
            .collect()
    };
    let (single, pair) = (spelled(single)?, spelled(pair)?);
    let processor: PostProcessorWrapper =
        part(json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}))?;
    tokenizer.with_post_processor(Some(processor));
    Ok(())
}

pub fn roberta_template(
    tokenizer: &mut Tokenizer,
    cls: &str,
    sep: &str,
    trim_offsets: bool,
    add_prefix_space: bool,
) -> Result<(), String> {
    let ends = json!({"type": "RobertaProcessing", "sep": [sep, id_of(tokenizer, sep)?], "cls": [cls, id_of(tokenizer, cls)?],
                      "trim_offsets": trim_offsets, "add_prefix_space": add_prefix_space});
    tokenizer.with_post_processor(Some(part::<PostProcessorWrapper>(ends)?));
    Ok(())
}

/// Sets the template of classes without one of their own: bos and eos where the settings ask for them.
pub fn ends_template(
    tokenizer: &mut Tokenizer,
    folder: &Folder,
    roles: Roles,
    bos: bool,
    eos: bool,
) -> Result<(), String> {
    let (bos, eos) = (folder.flag("add_bos_token", bos), folder.flag("add_eos_token", eos));
    let begin = if bos {
        named(folder, roles, "bos_token")?
    } else {
        String::new()
    };
    let end = if eos {
        named(folder, roles, "eos_token")?
    } else {
        String::new()
    };
    let around = |text: &'static str, kind| {
        [(begin.as_str(), kind), (text, kind), (end.as_str(), kind)]
            .into_iter()
            .filter(|(name, _)| !name.is_empty())
            .collect::<Vec<_>>()
    };
    let single = around("A", 0);
    let pair = [single.clone(), around("B", 1)].concat();
    template(tokenizer, &single, &pair)
}

/// Sets "[CLS] A [SEP] B [SEP]" with the types of BERT.
pub fn bert_template(tokenizer: &mut Tokenizer, folder: &Folder, roles: Roles) -> Result<(), String> {
    let (cls, sep) = (named(folder, roles, "cls_token")?, named(folder, roles, "sep_token")?);
    template(
        tokenizer,
        &[(&cls, 0), ("A", 0), (&sep, 0)],
        &[(&cls, 0), ("A", 0), (&sep, 0), ("B", 1), (&sep, 1)],
    )
}

/// Sets "begin A end" and "begin A end end B end", all of type 0, with the tokens of these roles (RoBERTa's pairs).
pub fn pair_template(
    tokenizer: &mut Tokenizer,
    folder: &Folder,
    roles: Roles,
    begin: &str,
    end: &str,
) -> Result<(), String> {
    let (begin, end) = (named(folder, roles, begin)?, named(folder, roles, end)?);
    template(
        tokenizer,
        &[(&begin, 0), ("A", 0), (&end, 0)],
        &[(&begin, 0), ("A", 0), (&end, 0), (&end, 0), ("B", 0), (&end, 0)],
    )
}

/// Adds the mask, which takes the space before it.
pub fn add_mask(tokenizer: &mut Tokenizer, folder: &Folder, roles: Roles) -> Result<(), String> {
    let mask = named(folder, roles, "mask_token")?;
    if !folder.added.values().any(|t| t.content == mask) {
        tokenizer
            .add_special_tokens([AddedToken::from(mask, true).lstrip(true)])
            .map_err(|e| e.to_string())?;
    }
    Ok(())
}

pub fn sequence(steps: &[Value]) -> Value {
    json!({"type": "Sequence", "normalizers": steps})
}
