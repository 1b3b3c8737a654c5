// SPDX-License-Identifier: Apache-2.0
//! Builders of the classes whose vocabulary is a SentencePiece model.
use crate::folder::{file, read, Folder, Roles};
use crate::sentencepiece::{SentencePiece, CONTROL, USER_DEFINED};
use crate::tokenizer_classes::PIECES;
use crate::tokenizer_parts::*;
use serde_json::{json, Value};
use std::collections::HashMap;
use tokenizers::models::{
    bpe::{BpeBuilder, BPE},
    unigram::Unigram,
};
use tokenizers::normalizers::{Precompiled, Sequence};
use tokenizers::{AddedToken, ModelWrapper, NormalizerWrapper, Tokenizer};

pub fn sentence_piece(folder: &Folder) -> Result<SentencePiece, String> {
    let path = file(folder, PIECES[0])?;
    SentencePiece::parse(&read(path.as_ref())?).map_err(|e| format!("{path} cannot be read: {e}"))
}

/// Reads the folder's SentencePiece model. Returns an error when it is not a unigram model.
pub fn unigram_pieces(folder: &Folder) -> Result<SentencePiece, String> {
    let model = sentence_piece(folder)?;
    if model.model_type != 1 {
        return Err(format!(
            "its SentencePiece model is of type {}, expected 1 (unigram)",
            model.model_type
        ));
    }
    Ok(model)
}

/// Returns the pieces that the model itself separates from text.
pub fn kept_apart(model: &SentencePiece) -> Vec<AddedToken> {
    let apart = model
        .pieces
        .iter()
        .filter(|p| p.kind == CONTROL || p.kind == USER_DEFINED);
    apart
        .map(|p| AddedToken::from(p.text.clone(), p.kind == CONTROL).normalized(false))
        .collect()
}

/// Adds the pieces that the model itself separates from text, and the folder's tokens.
pub fn add_pieces(
    tokenizer: &mut Tokenizer,
    folder: &Folder,
    roles: Roles,
    model: &SentencePiece,
) -> Result<(), String> {
    let mut extra = kept_apart(model);
    extra.extend(folder.extra_tokens());
    folder.add_tokens(tokenizer, roles, extra)
}

pub fn charsmap(model: &SentencePiece) -> Result<Option<NormalizerWrapper>, String> {
    if model.charsmap.is_empty() {
        return Ok(None);
    }
    Precompiled::from(&model.charsmap)
        .map(|p| Some(p.into()))
        .map_err(|e| format!("the character map cannot be read: {e}"))
}

/// Returns the steps, as tokenizer.json spells them, and after them the model's own character map.
fn normalizer_before_charsmap(steps: Vec<Value>, model: &SentencePiece) -> Result<NormalizerWrapper, String> {
    let mut normalizers = steps
        .into_iter()
        .map(part::<NormalizerWrapper>)
        .collect::<Result<Vec<_>, _>>()?;
    normalizers.extend(charsmap(model)?);
    Ok(Sequence::new(normalizers).into())
}

/// Collapses runs of spaces after the model's own character map.
pub fn single_spaces(model: &SentencePiece) -> Result<Option<NormalizerWrapper>, String> {
    let mut steps: Vec<NormalizerWrapper> = charsmap(model)?.into_iter().collect();
    steps.push(part(
        json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}),
    )?);
    Ok(Some(Sequence::new(steps).into()))
}

pub fn unigram(vocab: Vec<(String, f64)>, unk_id: usize) -> Result<ModelWrapper, String> {
    Unigram::from(vocab, Some(unk_id), false)
        .map(ModelWrapper::from)
        .map_err(|e| e.to_string())
}

/// Returns the number of the unknown piece, which transformers finds by its name and score.
fn unknown_piece(folder: &Folder, roles: Roles, model: &SentencePiece, otherwise: usize) -> Result<usize, String> {
    let unk = named(folder, roles, "unk_token")?;
    let found = model.pieces.iter().position(|p| p.text == unk && p.score == 0.0);
    Ok(found.unwrap_or(otherwise))
}

/// Returns where Metaspace puts a space before text: always, or never with add_prefix_space false.
fn prefix_scheme(folder: &Folder) -> &'static str {
    if folder.flag("add_prefix_space", true) {
        "always"
    } else {
        "never"
    }
}

/// Returns a builder of byte pairs whose vocabulary are the model's pieces, with the merges that make them.
fn pairs_of_pieces(model: &SentencePiece) -> BpeBuilder {
    let ids: HashMap<&str, u32> = model
        .pieces
        .iter()
        .zip(0..)
        .map(|(p, id)| (p.text.as_str(), id))
        .collect();
    let vocab: ahash::AHashMap<String, u32> = ids.iter().map(|(text, id)| (text.to_string(), *id)).collect();
    BPE::builder().vocab_and_merges(vocab, model.merges(&ids))
}

pub fn spaces(split_first: bool, scheme: &str) -> Value {
    let metaspace = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true});
    if split_first {
        json!({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]})
    } else {
        metaspace
    }
}

pub fn t5(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let model = unigram_pieces(folder)?;
    let sentinels = folder
        .settings
        .get("extra_ids")
        .and_then(Value::as_u64)
        .unwrap_or(100)
        .min(10_000);
    let mut vocab = model.scored();
    vocab.extend((0..sentinels).rev().map(|i| (format!("<extra_id_{i}>"), 0.0)));
    let mut tokenizer = assembled(Parts {
        model: unigram(vocab, model.unk_id)?,
        normalizer: charsmap(&model)?,
        pre_tokenizer: spaces(true, "always"),
        decoder: spaces(false, "always"),
    })?;
    let mut extra = kept_apart(&model);
    extra.extend(folder.extra_tokens());
    extra.extend((0..sentinels).map(|i| AddedToken::from(format!("<extra_id_{i}>"), true)));
    folder.add_tokens(&mut tokenizer, roles, extra)?;
    let eos = named(folder, roles, "eos_token")?;
    template(
        &mut tokenizer,
        &[("A", 0), (&eos, 0)],
        &[("A", 0), (&eos, 0), ("B", 0), (&eos, 0)],
    )?;
    Ok(tokenizer)
}

pub fn albert(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let model = unigram_pieces(folder)?;
    let mut steps = vec![
        json!({"type": "Replace", "pattern": {"String": "``"}, "content": "\""}),
        json!({"type": "Replace", "pattern": {"String": "''"}, "content": "\""}),
    ];
    if !folder.flag("keep_accents", false) {
        steps.extend([json!({"type": "NFKD"}), json!({"type": "StripAccents"})]);
    }
    if folder.flag("do_lower_case", true) {
        steps.push(json!({"type": "Lowercase"}));
    }
    let normalizer = normalizer_before_charsmap(steps, &model)?;
    let scheme = prefix_scheme(folder);
    let mut tokenizer = assembled(Parts {
        model: unigram(model.scored(), model.unk_id)?,
        normalizer: Some(normalizer),
        pre_tokenizer: spaces(true, scheme),
        decoder: spaces(false, scheme),
    })?;
    add_pieces(&mut tokenizer, folder, roles, &model)?;
    bert_template(&mut tokenizer, folder, roles)?;
    Ok(tokenizer)
}

/// Builds Fairseq's numbering: its four special tokens, the pieces from the fourth on, the mask.
pub fn xlm_roberta(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let model = unigram_pieces(folder)?;
    let mut vocab = Vec::new();
    for role in ["bos_token", "pad_token", "eos_token", "unk_token"] {
        vocab.push((named(folder, roles, role)?, 0.0));
    }
    vocab.extend(model.scored().into_iter().skip(3));
    vocab.push((named(folder, roles, "mask_token")?, 0.0));
    let scheme = prefix_scheme(folder);
    let mut tokenizer = assembled(Parts {
        model: unigram(vocab, 3)?,
        normalizer: charsmap(&model)?,
        pre_tokenizer: spaces(true, scheme),
        decoder: spaces(false, scheme),
    })?;
    add_pieces(&mut tokenizer, folder, roles, &model)?;
    pair_template(&mut tokenizer, folder, roles, "bos_token", "eos_token")?;
    Ok(tokenizer)
}

/// Builds CamemBERT's vocabulary: its own special tokens, the pieces from the second on, the mask.
pub fn camembert(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let model = unigram_pieces(folder)?;
    let mut vocab = vec![
        ("<s>NOTUSED".to_string(), 0.0),
        (named(folder, roles, "pad_token")?, 0.0),
        ("</s>NOTUSED".to_string(), 0.0),
        (named(folder, roles, "unk_token")?, 0.0),
        ("<unk>NOTUSED".to_string(), -100.0),
    ];
    vocab.extend(model.scored().into_iter().skip(1));
    vocab.push((named(folder, roles, "mask_token")?, 0.0));
    let scheme = prefix_scheme(folder);
    let mut tokenizer = assembled(Parts {
        model: unigram(vocab, 3)?,
        normalizer: charsmap(&model)?,
        pre_tokenizer: spaces(true, scheme),
        decoder: spaces(false, scheme),
    })?;
    add_pieces(&mut tokenizer, folder, roles, &model)?;
    add_mask(&mut tokenizer, folder, roles)?;
    pair_template(&mut tokenizer, folder, roles, "bos_token", "eos_token")?;
    Ok(tokenizer)
}

/// Builds BARThez' tokenizer: the model's own numbers, of which 3 is the unknown piece. It has no template.
pub fn barthez(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let model = unigram_pieces(folder)?;
    if model.pieces.len() <= 3 {
        return Err(format!(
            "its SentencePiece model has {} pieces, expected 4 or more",
            model.pieces.len()
        ));
    }
    let scheme = prefix_scheme(folder);
    let normalizer = json!({"type": "Sequence", "normalizers": [
        {"type": "Replace", "pattern": {"Regex": r"\s{2,}|[\n\r\t]"}, "content": " "},
        {"type": "NFC"},
        {"type": "Strip", "strip_left": false, "strip_right": true}]});
    let mut tokenizer = assembled(Parts {
        model: unigram(model.scored(), 3)?,
        normalizer: Some(part(normalizer)?),
        pre_tokenizer: spaces(false, scheme),
        decoder: spaces(false, scheme),
    })?;
    add_pieces(&mut tokenizer, folder, roles, &model)?;
    add_mask(&mut tokenizer, folder, roles)?;
    ends_template(&mut tokenizer, folder, roles, false, false)?;
    Ok(tokenizer)
}

/// Builds the tokenizer of DeBERTa-v2 and v3. The model's own character map is not applied, as in transformers.
pub fn deberta_v2(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let model = unigram_pieces(folder)?;
    let scheme = if folder.flag("add_prefix_space", true) {
        "always"
    } else {
        "first"
    };
    let mut steps = Vec::new();
    if folder.flag("do_lower_case", false) {
        steps.push(json!({"type": "Lowercase"}));
    }
    steps.extend([
        json!({"type": "Replace", "pattern": {"Regex": r"\s{2,}|[\n\r\t]"}, "content": " "}),
        json!({"type": "NFC"}),
        json!({"type": "Strip", "strip_left": false, "strip_right": true}),
    ]);
    let mut splits = vec![spaces(false, scheme)];
    if folder.flag("split_by_punct", false) {
        splits.insert(0, json!({"type": "Punctuation", "behavior": "Isolated"}));
    }
    let unk = unknown_piece(folder, roles, &model, model.unk_id)?;
    let mut tokenizer = assembled(Parts {
        model: unigram(model.scored(), unk)?,
        normalizer: Some(part(sequence(&steps))?),
        pre_tokenizer: json!({"type": "Sequence", "pretokenizers": splits}),
        decoder: spaces(false, scheme),
    })?;
    add_pieces(&mut tokenizer, folder, roles, &model)?;
    bert_template(&mut tokenizer, folder, roles)?;
    Ok(tokenizer)
}

pub fn xlnet(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let model = unigram_pieces(folder)?;
    let mut steps = vec![
        json!({"type": "Replace", "pattern": {"String": "``"}, "content": "\""}),
        json!({"type": "Replace", "pattern": {"String": "''"}, "content": "\""}),
        json!({"type": "NFKD"}),
        json!({"type": "StripAccents"}),
    ];
    if folder.flag("do_lower_case", false) {
        steps.push(json!({"type": "Lowercase"}));
    }
    let normalizer = normalizer_before_charsmap(steps, &model)?;
    let mut tokenizer = assembled(Parts {
        model: unigram(model.scored(), model.unk_id)?,
        normalizer: Some(normalizer),
        pre_tokenizer: spaces(true, "always"),
        decoder: spaces(false, "always"),
    })?;
    let mut extra = kept_apart(&model);
    let mask = named(folder, roles, "mask_token")?;
    let separate = extra.iter().any(|t| t.content == mask);
    extra.extend(folder.extra_tokens());
    folder.add_tokens(&mut tokenizer, roles, extra)?;
    if !separate {
        add_mask(&mut tokenizer, folder, roles)?;
    }
    let (cls, sep) = (named(folder, roles, "cls_token")?, named(folder, roles, "sep_token")?);
    template(
        &mut tokenizer,
        &[("A", 0), (&sep, 0), (&cls, 2)],
        &[("A", 0), (&sep, 0), ("B", 1), (&sep, 1), (&cls, 2)],
    )?;
    Ok(tokenizer)
}

/// Builds Reformer's tokenizer: the merges of the model's pieces. It has no template.
pub fn reformer(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let model = sentence_piece(folder)?;
    let bpe = pairs_of_pieces(&model)
        .unk_token(named(folder, roles, "unk_token")?)
        .fuse_unk(true);
    let normalizer = if model.charsmap.is_empty() {
        None
    } else {
        single_spaces(&model)?
    };
    let mut tokenizer = assembled(Parts {
        model: bpe.build().map_err(|e| e.to_string())?.into(),
        normalizer,
        pre_tokenizer: spaces(false, "always"),
        decoder: spaces(false, "always"),
    })?;
    add_pieces(&mut tokenizer, folder, roles, &model)?;
    ends_template(&mut tokenizer, folder, roles, false, false)?;
    Ok(tokenizer)
}

pub fn big_bird(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let model = unigram_pieces(folder)?;
    let scheme = prefix_scheme(folder);
    // The unknown piece of the published model is number 100.
    let unk = unknown_piece(folder, roles, &model, 100)?;
    let steps = [json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"})];
    let mut tokenizer = assembled(Parts {
        model: unigram(model.scored(), unk)?,
        normalizer: Some(part(sequence(&steps))?),
        pre_tokenizer: spaces(false, scheme),
        decoder: spaces(false, scheme),
    })?;
    add_pieces(&mut tokenizer, folder, roles, &model)?;
    add_mask(&mut tokenizer, folder, roles)?;
    bert_template(&mut tokenizer, folder, roles)?;
    Ok(tokenizer)
}

pub fn llama(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let model = sentence_piece(folder)?;
    if model.model_type != 2 {
        return Err(format!(
            "its SentencePiece model is of type {}, expected 2 (BPE)",
            model.model_type
        ));
    }
    let bpe = pairs_of_pieces(&model)
        .unk_token(model.unk_piece.clone())
        .fuse_unk(true)
        .byte_fallback(true);
    let space = folder.flag("add_prefix_space", true);
    let scheme = match (space, folder.flag("legacy", false)) {
        (false, _) => "never",
        (true, true) => "always",
        (true, false) => "first",
    };
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if space {
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    let mut tokenizer = assembled(Parts {
        model: bpe.build().map_err(|e| e.to_string())?.into(),
        normalizer: None,
        pre_tokenizer: json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false}),
        decoder: json!({"type": "Sequence", "decoders": decoders}),
    })?;
    add_pieces(&mut tokenizer, folder, roles, &model)?;
    ends_template(&mut tokenizer, folder, roles, true, false)?;
    Ok(tokenizer)
}
