// SPDX-License-Identifier: Apache-2.0
//! Builders of the classes whose vocabulary is a list of words (vocab.txt) or pairs (vocab.json, merges.txt), or bytes.
use crate::folder::{file, read, token_of, Folder, Roles};
use crate::tokenizer_parts::*;
use serde_json::{json, Value};
use tokenizers::models::{bpe::BPE, wordpiece::WordPiece};
use tokenizers::{AddedToken, ModelWrapper, PostProcessorWrapper, Tokenizer};

fn word_piece(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    words_of_pieces(folder, roles, "vocab.txt", true, folder.extra_tokens())
}

/// `cleanup`: decoding takes the spaces before punctuation out.
fn words_of_pieces(
    folder: &Folder,
    roles: Roles,
    name: &str,
    cleanup: bool,
    extra: Vec<AddedToken>,
) -> Result<Tokenizer, String> {
    let vocab = file(folder, &[name])?;
    read(vocab.as_ref())?; // checks the size limit
    let model = WordPiece::from_file(&vocab)
        .unk_token(named(folder, roles, "unk_token")?)
        .build()
        .map_err(|e| e.to_string())?;
    let normalizer = json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": folder.flag("tokenize_chinese_chars", true),
                            "strip_accents": folder.settings.get("strip_accents").and_then(Value::as_bool), "lowercase": folder.flag("do_lower_case", true)});
    let mut tokenizer = assembled(Parts {
        model: model.into(),
        normalizer: Some(part(normalizer)?),
        pre_tokenizer: json!({"type": "BertPreTokenizer"}),
        decoder: json!({"type": "WordPiece", "prefix": "##", "cleanup": cleanup}),
    })?;
    folder.add_tokens(&mut tokenizer, roles, extra)?;
    Ok(tokenizer)
}

pub fn bert(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let mut tokenizer = word_piece(folder, roles)?;
    bert_template(&mut tokenizer, folder, roles)?;
    Ok(tokenizer)
}

/// Builds ProphetNet's tokenizer, which transformers has in Python only: BERT's words, a second separator, and a template
/// without a token at the beginning.
pub fn prophetnet(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let mut extra: Vec<AddedToken> = folder.token("x_sep_token", "[X_SEP]").into_iter().collect();
    extra.extend(folder.extra_tokens());
    let mut tokenizer = words_of_pieces(folder, roles, "prophetnet.tokenizer", false, extra)?;
    let sep = named(folder, roles, "sep_token")?;
    template(
        &mut tokenizer,
        &[("A", 0), (&sep, 0)],
        &[("A", 0), (&sep, 0), ("B", 1), (&sep, 1)],
    )?;
    Ok(tokenizer)
}

pub fn mpnet(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let mut tokenizer = word_piece(folder, roles)?;
    add_mask(&mut tokenizer, folder, roles)?;
    roberta_template(
        &mut tokenizer,
        &named(folder, roles, "cls_token")?,
        &named(folder, roles, "sep_token")?,
        true,
        false,
    )?;
    Ok(tokenizer)
}

pub fn funnel(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let mut tokenizer = word_piece(folder, roles)?;
    let (cls, sep) = (named(folder, roles, "cls_token")?, named(folder, roles, "sep_token")?);
    template(
        &mut tokenizer,
        &[(&cls, 2), ("A", 0), (&sep, 0)],
        &[(&cls, 2), ("A", 0), (&sep, 0), ("B", 1), (&sep, 1)],
    )?;
    Ok(tokenizer)
}

fn byte_pairs(folder: &Folder, unk: Option<String>, end: &str) -> Result<ModelWrapper, String> {
    let (vocab, merges) = (file(folder, &["vocab.json"])?, file(folder, &["merges.txt"])?);
    read(vocab.as_ref())?;
    read(merges.as_ref())?;
    let mut builder = BPE::from_file(&vocab, &merges)
        .continuing_subword_prefix(String::new())
        .end_of_word_suffix(end.into());
    if let Some(unk) = unk {
        builder = builder.unk_token(unk);
    }
    builder.build().map(ModelWrapper::from).map_err(|e| e.to_string())
}

fn byte_level(folder: &Folder, roles: Roles, add_prefix_space: bool) -> Result<Tokenizer, String> {
    let level =
        json!({"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": true, "use_regex": true});
    let decoder = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    let mut tokenizer = assembled(Parts {
        model: byte_pairs(folder, None, "")?,
        normalizer: None,
        pre_tokenizer: level,
        decoder,
    })?;
    folder.add_tokens(&mut tokenizer, roles, folder.extra_tokens())?;
    Ok(tokenizer)
}

pub fn gpt2(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let mut tokenizer = byte_level(folder, roles, folder.flag("add_prefix_space", false))?;
    ends_template(&mut tokenizer, folder, roles, false, false)?;
    Ok(tokenizer)
}

pub fn roberta(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let space = folder.flag("add_prefix_space", false);
    let mut tokenizer = byte_level(folder, roles, space)?;
    roberta_template(
        &mut tokenizer,
        &named(folder, roles, "cls_token")?,
        &named(folder, roles, "sep_token")?,
        folder.flag("trim_offsets", true),
        space,
    )?;
    Ok(tokenizer)
}

/// Builds LUKE's tokenizer of texts: RoBERTa's, with marks around entities and the special entities as tokens.
pub fn entity_marks(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let space = folder.flag("add_prefix_space", false);
    let mut tokenizer = byte_level(folder, roles, space)?;
    folder.add_tokens(&mut tokenizer, roles, entity_tokens(folder))?;
    roberta_template(
        &mut tokenizer,
        &named(folder, roles, "cls_token")?,
        &named(folder, roles, "sep_token")?,
        true,
        true,
    )?;
    Ok(tokenizer)
}

/// Returns the special tokens of LUKE beside those of RoBERTa.
fn entity_tokens(folder: &Folder) -> Vec<AddedToken> {
    let named = |keys: &[&str], default: &str| {
        let set = keys.iter().find_map(|key| folder.settings.get(*key));
        set.and_then(|value| token_of(value, true))
            .unwrap_or_else(|| AddedToken::from(default, true))
    };
    let mut tokens = folder.extra_tokens();
    tokens.extend([
        named(&["entity_token_1", "entity_1_token"], "<ent>"),
        named(&["entity_token_2", "entity_2_token"], "<ent2>"),
        named(&["entity_unk_token"], "[UNK]"),
        named(&["entity_pad_token"], "[PAD]"),
        named(&["entity_mask_token"], "[MASK]"),
        named(&["entity_mask2_token"], "[MASK2]"),
    ]);
    tokens
}

pub fn blenderbot(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let mut tokenizer = byte_level(folder, roles, folder.flag("add_prefix_space", true))?;
    add_mask(&mut tokenizer, folder, roles)?;
    ends_template(&mut tokenizer, folder, roles, false, false)?;
    Ok(tokenizer)
}

pub fn deberta(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let mut tokenizer = byte_level(folder, roles, folder.flag("add_prefix_space", false))?;
    pair_template(&mut tokenizer, folder, roles, "cls_token", "sep_token")?;
    Ok(tokenizer)
}

/// Builds pairs whose last one carries "</w>", on words as BERT splits them.
fn suffixed_pairs(
    folder: &Folder,
    roles: Roles,
    lowercase: bool,
    strip_accents: Option<bool>,
) -> Result<Tokenizer, String> {
    let mut tokenizer = assembled(Parts {
        model: byte_pairs(folder, Some(named(folder, roles, "unk_token")?), "</w>")?,
        normalizer: Some(part(
            json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                                     "strip_accents": strip_accents, "lowercase": lowercase}),
        )?),
        pre_tokenizer: json!({"type": "BertPreTokenizer"}),
        decoder: json!({"type": "BPEDecoder", "suffix": "</w>"}),
    })?;
    folder.add_tokens(&mut tokenizer, roles, folder.extra_tokens())?;
    Ok(tokenizer)
}

pub fn openai_gpt(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let mut tokenizer = suffixed_pairs(folder, roles, true, None)?;
    ends_template(&mut tokenizer, folder, roles, false, false)?;
    Ok(tokenizer)
}

/// Builds HerBERT's tokenizer. The ids of the tokens around a text are 0 and 2, whatever the vocabulary says.
pub fn herbert(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let mut tokenizer = suffixed_pairs(folder, roles, false, Some(false))?;
    let (cls, sep) = (named(folder, roles, "cls_token")?, named(folder, roles, "sep_token")?);
    let ends = json!({"type": "BertProcessing", "sep": [sep, 2], "cls": [cls, 0]});
    tokenizer.with_post_processor(Some(part::<PostProcessorWrapper>(ends)?));
    Ok(tokenizer)
}

pub fn clip(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let words = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";
    let mut tokenizer = assembled(Parts {
        model: byte_pairs(folder, Some(named(folder, roles, "unk_token")?), "</w>")?,
        normalizer: Some(part(
            json!({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}, {"type": "Lowercase"}]}),
        )?),
        pre_tokenizer: json!({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": words}, "behavior": "Removed", "invert": true},
                                                                    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}]}),
        decoder: json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
    })?;
    folder.add_tokens(&mut tokenizer, roles, folder.extra_tokens())?;
    roberta_template(
        &mut tokenizer,
        &named(folder, roles, "bos_token")?,
        &named(folder, roles, "eos_token")?,
        false,
        false,
    )?;
    Ok(tokenizer)
}

/// Returns GPT-2's byte characters: printable bytes are themselves, the others 256, 257, ...
fn byte_characters() -> impl Iterator<Item = char> {
    let mut next = 255;
    (0..256u32).filter_map(move |byte| {
        let printable = (33..=126).contains(&byte) || (161..=172).contains(&byte) || byte >= 174;
        char::from_u32(if printable {
            byte
        } else {
            next += 1;
            next
        })
    })
}

/// A tokenizer without a vocabulary: the special tokens, then one id per byte. `strips`: special tokens take the
/// spaces around them.
fn of_bytes(special: Vec<String>, strips: bool) -> Result<Tokenizer, String> {
    let vocab: ahash::AHashMap<String, u32> = special
        .iter()
        .cloned()
        .chain(byte_characters().map(String::from))
        .zip(0..)
        .collect();
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let model = BPE::builder()
        .vocab_and_merges(vocab, Vec::new())
        .build()
        .map_err(|e| e.to_string())?;
    let mut tokenizer = assembled(Parts {
        model: model.into(),
        normalizer: None,
        pre_tokenizer: level.clone(),
        decoder: level,
    })?;
    let added = special
        .into_iter()
        .map(|t| AddedToken::from(t, true).lstrip(strips).rstrip(strips));
    tokenizer.add_special_tokens(added).map_err(|e| e.to_string())?;
    Ok(tokenizer)
}

/// ByT5 has pad, eos, unk, then bytes, then the sentinels.
pub fn byt5(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let ends = ["pad_token", "eos_token", "unk_token"].map(|role| named(folder, roles, role));
    let mut tokenizer = of_bytes(ends.into_iter().collect::<Result<_, _>>()?, true)?;
    let sentinels = folder
        .settings
        .get("extra_ids")
        .and_then(Value::as_u64)
        .filter(|n| *n > 0)
        .unwrap_or(125)
        .min(10_000);
    tokenizer
        .add_special_tokens((0..sentinels).map(|i| AddedToken::from(format!("<extra_id_{i}>"), true)))
        .map_err(|e| e.to_string())?;
    let eos = named(folder, roles, "eos_token")?;
    template(
        &mut tokenizer,
        &[("A", 0), (&eos, 0)],
        &[("A", 0), (&eos, 0), ("B", 0), (&eos, 0)],
    )?;
    Ok(tokenizer)
}

/// Perceiver has pad, bos, eos, mask, cls, sep, then bytes. Texts stand between cls and sep.
pub fn perceiver(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let special = roles.iter().map(|(role, _)| named(folder, roles, role));
    let mut tokenizer = of_bytes(special.collect::<Result<_, _>>()?, false)?;
    let (cls, sep) = (named(folder, roles, "cls_token")?, named(folder, roles, "sep_token")?);
    template(
        &mut tokenizer,
        &[(&cls, 0), ("A", 0), (&sep, 0)],
        &[(&cls, 0), ("A", 0), (&sep, 0), ("B", 1), (&sep, 1)],
    )?;
    Ok(tokenizer)
}
