// SPDX-License-Identifier: Apache-2.0
//! Builders of the classes of translation and summaries whose vocabulary is made of a SentencePiece model, languages and
//! masks.
use crate::folder::{Folder, Roles};
use crate::piece_builders::*;
use crate::sentencepiece::SentencePiece;
use crate::tokenizer_parts::*;
use serde_json::{json, Value};
use tokenizers::normalizers::Sequence;
use tokenizers::{AddedToken, NormalizerWrapper, Tokenizer};

/// Languages of mBART, and the additional ones of mBART-50.
const LANGUAGES: &str = "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN";
const MORE_LANGUAGES: &str = "af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI";

/// Builds Fairseq's numbering with languages: its four special tokens, the pieces from the fourth on, the languages,
/// the mask.
fn of_languages(
    folder: &Folder,
    roles: Roles,
    first: &str,
    languages: &[&str],
    split_first: bool,
    normalizer: impl Fn(&SentencePiece) -> Result<Option<NormalizerWrapper>, String>,
) -> Result<(Tokenizer, String), String> {
    let model = unigram_pieces(folder)?;
    let mut vocab = Vec::new();
    for role in [first, "pad_token", "eos_token", "unk_token"] {
        vocab.push((named(folder, roles, role)?, 0.0));
    }
    vocab.extend(model.scored().into_iter().skip(3));
    vocab.extend(languages.iter().map(|code| (code.to_string(), 0.0)));
    let mask = named(folder, roles, "mask_token")?;
    vocab.push((mask.clone(), 0.0));
    let mut tokenizer = assembled(Parts {
        model: unigram(vocab, 3)?,
        normalizer: normalizer(&model)?,
        pre_tokenizer: spaces(split_first, "always"),
        decoder: spaces(false, "always"),
    })?;
    let mut extra = kept_apart(&model);
    extra.extend(languages.iter().map(|code| AddedToken::from(code.to_string(), true)));
    extra.extend(folder.extra_tokens());
    folder.add_tokens(&mut tokenizer, roles, extra)?;
    if !folder.added.values().any(|t| t.content == mask) {
        // The mask token takes the space before it.
        tokenizer
            .add_special_tokens([AddedToken::from(mask, true).lstrip(true)])
            .map_err(|e| e.to_string())?;
    }
    let source = folder
        .settings
        .get("src_lang")
        .and_then(Value::as_str)
        .unwrap_or("en_XX")
        .to_string();
    id_of(&tokenizer, &source).map_err(|_| {
        format!(
            "tokenizer_config.json has src_lang \"{source}\", expected one of {}",
            languages.join(", ")
        )
    })?;
    Ok((tokenizer, source))
}

pub fn mbart(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let languages: Vec<&str> = LANGUAGES.split(' ').collect();
    let (mut tokenizer, source) = of_languages(folder, roles, "bos_token", &languages, true, |_| Ok(None))?;
    let eos = named(folder, roles, "eos_token")?;
    template(
        &mut tokenizer,
        &[("A", 0), (&eos, 0), (&source, 0)],
        &[("A", 0), ("B", 0), (&eos, 0), (&source, 0)],
    )?;
    Ok(tokenizer)
}

pub fn mbart50(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let languages: Vec<&str> = LANGUAGES.split(' ').chain(MORE_LANGUAGES.split(' ')).collect();
    let (mut tokenizer, source) = of_languages(folder, roles, "cls_token", &languages, false, single_spaces)?;
    let eos = named(folder, roles, "eos_token")?;
    template(
        &mut tokenizer,
        &[(&source, 0), ("A", 0), (&eos, 0)],
        &[(&source, 0), ("A", 0), ("B", 0), (&eos, 0)],
    )?;
    Ok(tokenizer)
}

/// Builds Pegasus' vocabulary: the model's first two pieces, the masks of words and sentences, <unk_2> to <unk_102>,
/// the model's other pieces.
pub fn pegasus(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let model = unigram_pieces(folder)?;
    let setting = |key: &str, default: &str| match folder.settings.get(key) {
        Some(Value::Null) => None,
        Some(value) => crate::folder::token_of(value, true).map(|t| t.content),
        None => Some(default.to_string()),
    };
    // Transformers' converter has other defaults than its class.
    let (word, sentence) = (
        setting("mask_token", "<mask_1>"),
        setting("mask_token_sent", "<mask_2>"),
    );
    let offset = folder
        .settings
        .get("offset")
        .and_then(Value::as_u64)
        .unwrap_or(103)
        .min(10_000);
    let mut vocab = vec![
        (named(folder, roles, "pad_token")?, 0.0),
        (named(folder, roles, "eos_token")?, 0.0),
    ];
    vocab.extend(word.iter().map(|mask| (mask.clone(), 0.0)));
    vocab.extend(
        sentence
            .iter()
            .filter(|mask| word.as_ref() != Some(*mask))
            .map(|mask| (mask.clone(), 0.0)),
    );
    vocab.extend((2..offset).map(|i| (format!("<unk_{i}>"), -100.0)));
    vocab.extend(model.scored().into_iter().skip(2));
    let unk = named(folder, roles, "unk_token")?;
    let unk_id = vocab
        .iter()
        .position(|(text, score)| *text == unk && *score == 0.0)
        .ok_or_else(|| format!("the vocabulary lacks \"{unk}\""))?;
    let normalizer = if model.charsmap.is_empty() {
        let steps = [
            json!({"type": "Replace", "pattern": {"Regex": r"\n"}, "content": " "}),
            json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}),
        ];
        Some(
            Sequence::new(
                steps
                    .into_iter()
                    .map(part::<NormalizerWrapper>)
                    .collect::<Result<Vec<_>, _>>()?,
            )
            .into(),
        )
    } else {
        single_spaces(&model)?
    };
    let mut tokenizer = assembled(Parts {
        model: unigram(vocab, unk_id)?,
        normalizer,
        pre_tokenizer: spaces(false, "always"),
        decoder: spaces(false, "always"),
    })?;
    let mut extra: Vec<AddedToken> = setting("mask_token_sent", "<mask_1>")
        .map(|mask| AddedToken::from(mask, true))
        .into_iter()
        .collect();
    extra.extend((2..offset).map(|i| AddedToken::from(format!("<unk_{i}>"), true)));
    extra.extend(folder.extra_tokens());
    folder.add_tokens(&mut tokenizer, roles, extra)?;
    let eos = named(folder, roles, "eos_token")?;
    template(&mut tokenizer, &[("A", 0), (&eos, 0)], &[("A", 0), ("B", 0), (&eos, 0)])?;
    Ok(tokenizer)
}
