// SPDX-License-Identifier: Apache-2.0
//! Table of the tokenizer classes that are built from files older than tokenizer.json, with the builder and the special
//! tokens of each. The oracle is transformers 5 (`models/*/tokenization_*.py`); components are written as
//! tokenizer.json spells them.
use crate::any_tokenizer::AnyTokenizer;
use crate::folder::{default_of, file, read, Folder, Roles};
use crate::sentencepiece::{SentencePiece, CONTROL, USER_DEFINED};
use crate::slow_tokenizer::{translated_languages, SlowTokenizer};
use serde::de::DeserializeOwned;
use serde_json::{json, Value};
use std::collections::HashMap;
use tokenizers::models::{bpe::BPE, unigram::Unigram, wordpiece::WordPiece};
use tokenizers::normalizers::{Precompiled, Sequence};
use tokenizers::{
    AddedToken, DecoderWrapper, ModelWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, Tokenizer,
};

pub struct TokenizerClass {
    classes: &'static [&'static str],
    model_types: &'static [&'static str],
    /// required files, each with its possible names
    files: &'static [&'static [&'static str]],
    pub roles: Roles,
    build: Build,
}

enum Build {
    Fast(fn(&Folder, Roles) -> Result<Tokenizer, String>),
    Slow(fn(&Folder, Roles) -> Result<SlowTokenizer, String>),
}
use Build::Fast;

const BERT: Roles = &[
    ("unk_token", "[UNK]"),
    ("sep_token", "[SEP]"),
    ("pad_token", "[PAD]"),
    ("cls_token", "[CLS]"),
    ("mask_token", "[MASK]"),
];
const MPNET: Roles = &[
    ("bos_token", "<s>"),
    ("eos_token", "</s>"),
    ("unk_token", "[UNK]"),
    ("sep_token", "</s>"),
    ("pad_token", "<pad>"),
    ("cls_token", "<s>"),
    ("mask_token", "<mask>"),
];
const GPT2: Roles = &[
    ("bos_token", "<|endoftext|>"),
    ("eos_token", "<|endoftext|>"),
    ("unk_token", "<|endoftext|>"),
];
const ROBERTA: Roles = &[
    ("bos_token", "<s>"),
    ("eos_token", "</s>"),
    ("unk_token", "<unk>"),
    ("sep_token", "</s>"),
    ("pad_token", "<pad>"),
    ("cls_token", "<s>"),
    ("mask_token", "<mask>"),
];
const HERBERT: Roles = &[
    ("unk_token", "<unk>"),
    ("sep_token", "</s>"),
    ("pad_token", "<pad>"),
    ("cls_token", "<s>"),
    ("mask_token", "<mask>"),
];
const DEBERTA: Roles = &[
    ("bos_token", "[CLS]"),
    ("eos_token", "[SEP]"),
    ("unk_token", "[UNK]"),
    ("sep_token", "[SEP]"),
    ("pad_token", "[PAD]"),
    ("cls_token", "[CLS]"),
    ("mask_token", "[MASK]"),
];
const XLNET: Roles = &[
    ("bos_token", "<s>"),
    ("eos_token", "</s>"),
    ("unk_token", "<unk>"),
    ("sep_token", "<sep>"),
    ("pad_token", "<pad>"),
    ("cls_token", "<cls>"),
    ("mask_token", "<mask>"),
];
const BIG_BIRD: Roles = &[
    ("bos_token", "<s>"),
    ("eos_token", "</s>"),
    ("unk_token", "<unk>"),
    ("sep_token", "[SEP]"),
    ("pad_token", "<pad>"),
    ("cls_token", "[CLS]"),
    ("mask_token", "[MASK]"),
];
const REFORMER: Roles = &[("eos_token", "</s>"), ("unk_token", "<unk>")];
const CLIP: Roles = &[
    ("bos_token", "<|startoftext|>"),
    ("eos_token", "<|endoftext|>"),
    ("unk_token", "<|endoftext|>"),
    ("pad_token", "<|endoftext|>"),
];
const T5: Roles = &[("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "<pad>")];
const ALBERT: Roles = &[
    ("bos_token", "[CLS]"),
    ("eos_token", "[SEP]"),
    ("unk_token", "<unk>"),
    ("sep_token", "[SEP]"),
    ("pad_token", "<pad>"),
    ("cls_token", "[CLS]"),
    ("mask_token", "[MASK]"),
];
const LLAMA: Roles = &[("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", "<unk>")];

const UNK: Roles = &[("unk_token", "<unk>")];
const XLM: Roles = &[
    ("bos_token", "<s>"),
    ("unk_token", "<unk>"),
    ("sep_token", "</s>"),
    ("pad_token", "<pad>"),
    ("cls_token", "</s>"),
    ("mask_token", "<special1>"),
];
const FSMT: Roles = &[
    ("bos_token", "<s>"),
    ("unk_token", "<unk>"),
    ("sep_token", "</s>"),
    ("pad_token", "<pad>"),
];
const DIALOGUE: Roles = &[
    ("bos_token", "__start__"),
    ("eos_token", "__end__"),
    ("unk_token", "__unk__"),
    ("pad_token", "__null__"),
];

const MBART50: Roles = &[
    ("eos_token", "</s>"),
    ("unk_token", "<unk>"),
    ("sep_token", "</s>"),
    ("pad_token", "<pad>"),
    ("cls_token", "<s>"),
    ("mask_token", "<mask>"),
];
const PEGASUS: Roles = &[
    ("eos_token", "</s>"),
    ("unk_token", "<unk>"),
    ("pad_token", "<pad>"),
    ("mask_token", "<mask_2>"),
];
const M2M100: Roles = &[
    ("bos_token", "<s>"),
    ("eos_token", "</s>"),
    ("unk_token", "<unk>"),
    ("sep_token", "</s>"),
    ("pad_token", "<pad>"),
];

/// Languages of mBART, and the additional ones of mBART-50.
const LANGUAGES: &str = "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN";
const MORE_LANGUAGES: &str = "af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI";

const WORDS: &[&[&str]] = &[&["vocab.txt"]];
const PAIRS: &[&[&str]] = &[&["vocab.json"], &["merges.txt"]];
const TRANSLATION: &[&[&str]] = &[&["vocab-src.json"], &["vocab-tgt.json"], &["merges.txt"]];
const COUNTED: &[&[&str]] = &[&["vocab.txt"], &["bpe.codes"]];
const PIECES: &[&[&str]] = &[&[
    "spiece.model",
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "spm.model",
]];
const TWO_MODELS: &[&[&str]] = &[&["source.spm"], &["target.spm"], &["vocab.json"]];
const VOCAB_AND_PIECES: &[&[&str]] = &[&["vocab.json"], &["sentencepiece.bpe.model"]];

const TOKENIZER_CLASSES: &[TokenizerClass] = &[
    TokenizerClass {
        classes: &[
            "BertTokenizer",
            "DistilBertTokenizer",
            "ElectraTokenizer",
            "MobileBertTokenizer",
            "SqueezeBertTokenizer",
            "ConvBertTokenizer",
            "LayoutLMTokenizer",
            "LxmertTokenizer",
            "DPRQuestionEncoderTokenizer",
            "DPRContextEncoderTokenizer",
            "DPRReaderTokenizer",
            "RetriBertTokenizer",
        ],
        model_types: &[
            "bert",
            "distilbert",
            "electra",
            "mobilebert",
            "squeezebert",
            "convbert",
            "layoutlm",
            "lxmert",
            "dpr",
            "retribert",
            "visual_bert",
        ],
        files: WORDS,
        roles: BERT,
        build: Fast(bert),
    },
    TokenizerClass {
        classes: &["MPNetTokenizer"],
        model_types: &["mpnet"],
        files: WORDS,
        roles: MPNET,
        build: Fast(mpnet),
    },
    TokenizerClass {
        classes: &["GPT2Tokenizer"],
        model_types: &["gpt2", "gpt_neo", "gptj", "opt"],
        files: PAIRS,
        roles: GPT2,
        build: Fast(gpt2),
    },
    TokenizerClass {
        classes: &[
            "RobertaTokenizer",
            "BartTokenizer",
            "LongformerTokenizer",
            "LEDTokenizer",
        ],
        model_types: &["roberta", "bart", "longformer", "led"],
        files: PAIRS,
        roles: ROBERTA,
        build: Fast(roberta),
    },
    TokenizerClass {
        classes: &["CLIPTokenizer"],
        model_types: &["clip", "clip_text_model"],
        files: PAIRS,
        roles: CLIP,
        build: Fast(clip),
    },
    TokenizerClass {
        classes: &["ByT5Tokenizer"],
        model_types: &[],
        files: &[],
        roles: T5,
        build: Fast(byt5),
    },
    TokenizerClass {
        classes: &["T5Tokenizer", "MT5Tokenizer"],
        model_types: &["t5", "mt5", "umt5"],
        files: PIECES,
        roles: T5,
        build: Fast(t5),
    },
    TokenizerClass {
        classes: &["AlbertTokenizer"],
        model_types: &["albert"],
        files: PIECES,
        roles: ALBERT,
        build: Fast(albert),
    },
    TokenizerClass {
        classes: &["XLMRobertaTokenizer"],
        model_types: &["xlm-roberta"],
        files: PIECES,
        roles: ROBERTA,
        build: Fast(xlm_roberta),
    },
    TokenizerClass {
        classes: &["CamembertTokenizer"],
        model_types: &["camembert"],
        files: PIECES,
        roles: ROBERTA,
        build: Fast(camembert),
    },
    TokenizerClass {
        classes: &["BarthezTokenizer"],
        model_types: &[],
        files: PIECES,
        roles: ROBERTA,
        build: Fast(barthez),
    },
    TokenizerClass {
        classes: &["HerbertTokenizer"],
        model_types: &[],
        files: PAIRS,
        roles: HERBERT,
        build: Fast(herbert),
    },
    TokenizerClass {
        classes: &["OpenAIGPTTokenizer"],
        model_types: &["openai-gpt"],
        files: PAIRS,
        roles: UNK,
        build: Fast(openai_gpt),
    },
    TokenizerClass {
        classes: &["DebertaTokenizer"],
        model_types: &["deberta"],
        files: PAIRS,
        roles: DEBERTA,
        build: Fast(deberta),
    },
    TokenizerClass {
        classes: &["DebertaV2Tokenizer"],
        model_types: &["deberta-v2"],
        files: PIECES,
        roles: DEBERTA,
        build: Fast(deberta_v2),
    },
    TokenizerClass {
        classes: &["XLNetTokenizer"],
        model_types: &["xlnet"],
        files: PIECES,
        roles: XLNET,
        build: Fast(xlnet),
    },
    TokenizerClass {
        classes: &["ReformerTokenizer"],
        model_types: &["reformer"],
        files: PIECES,
        roles: REFORMER,
        build: Fast(reformer),
    },
    TokenizerClass {
        classes: &["BigBirdTokenizer"],
        model_types: &["big_bird"],
        files: PIECES,
        roles: BIG_BIRD,
        build: Fast(big_bird),
    },
    TokenizerClass {
        classes: &["FunnelTokenizer"],
        model_types: &["funnel"],
        files: WORDS,
        roles: XLNET,
        build: Fast(funnel),
    },
    TokenizerClass {
        classes: &["MBartTokenizer"],
        model_types: &["mbart"],
        files: PIECES,
        roles: ROBERTA,
        build: Fast(mbart),
    },
    TokenizerClass {
        classes: &["MBart50Tokenizer"],
        model_types: &[],
        files: PIECES,
        roles: MBART50,
        build: Fast(mbart50),
    },
    TokenizerClass {
        classes: &["PegasusTokenizer"],
        model_types: &["pegasus"],
        files: PIECES,
        roles: PEGASUS,
        build: Fast(pegasus),
    },
    TokenizerClass {
        classes: &["BlenderbotTokenizer"],
        model_types: &["blenderbot"],
        files: PAIRS,
        roles: ROBERTA,
        build: Fast(blenderbot),
    },
    TokenizerClass {
        classes: &["MarianTokenizer"],
        model_types: &["marian"],
        files: TWO_MODELS,
        roles: T5,
        build: Build::Slow(SlowTokenizer::marian),
    },
    TokenizerClass {
        classes: &["M2M100Tokenizer"],
        model_types: &["m2m_100"],
        files: VOCAB_AND_PIECES,
        roles: M2M100,
        build: Build::Slow(SlowTokenizer::m2m100),
    },
    TokenizerClass {
        classes: &["CTRLTokenizer"],
        model_types: &["ctrl"],
        files: PAIRS,
        roles: UNK,
        build: Build::Slow(SlowTokenizer::control_codes),
    },
    TokenizerClass {
        classes: &["BlenderbotSmallTokenizer"],
        model_types: &["blenderbot-small"],
        files: PAIRS,
        roles: DIALOGUE,
        build: Build::Slow(SlowTokenizer::dialogue),
    },
    TokenizerClass {
        classes: &["PhobertTokenizer", "BertweetTokenizer"],
        model_types: &[],
        files: COUNTED,
        roles: ROBERTA,
        build: Build::Slow(SlowTokenizer::fairseq_pairs),
    },
    TokenizerClass {
        classes: &["XLMTokenizer"],
        model_types: &["xlm"],
        files: PAIRS,
        roles: XLM,
        build: Build::Slow(SlowTokenizer::moses_english),
    },
    TokenizerClass {
        classes: &["FSMTTokenizer"],
        model_types: &["fsmt"],
        files: TRANSLATION,
        roles: FSMT,
        build: Build::Slow(SlowTokenizer::moses_translation),
    },
    TokenizerClass {
        classes: &["FlaubertTokenizer"],
        model_types: &["flaubert"],
        files: PAIRS,
        roles: XLM,
        build: Build::Slow(SlowTokenizer::moses_french),
    },
    TokenizerClass {
        classes: &["LlamaTokenizer"],
        model_types: &["llama"],
        files: PIECES,
        roles: LLAMA,
        build: Fast(llama),
    },
];

/// Returns the tokenizer class of a folder: the one that its files name, else that of the model type.
pub fn tokenizer_class(folder: &Folder) -> Option<&'static TokenizerClass> {
    let class = folder.class();
    if class.is_empty() || class == "PreTrainedTokenizer" || class == "Tokenizers" || class == "TokenizersBackend" {
        return TOKENIZER_CLASSES
            .iter()
            .find(|r| r.model_types.contains(&folder.model_type()));
    }
    TOKENIZER_CLASSES.iter().find(|r| r.classes.contains(&class.as_str()))
}

impl TokenizerClass {
    /// Returns why a folder of this class has no tokenizer: a file that is missing, or a setting that is not built.
    pub fn ids_only(&self, folder: &Folder) -> Option<String> {
        let absent = |names: &&&[&str]| !names.iter().any(|name| folder.path.join(name).is_file());
        if let Some(names) = self.files.iter().find(absent) {
            return Some(format!("no {}", names.join(", ")));
        }
        if folder.flag("normalization", false) && self.classes.contains(&"BertweetTokenizer") {
            return Some("tokenizer_config.json asks for the normalization of tweets, which is not built".into());
        }
        if self.classes.contains(&"FSMTTokenizer") && translated_languages(folder).is_none() {
            return Some("tokenizer_config.json has no langs of two of en, de, fr and ru".into());
        }
        None
    }

    pub fn build(&self, folder: &Folder) -> Result<AnyTokenizer, String> {
        match self.build {
            Fast(build) => build(folder, self.roles).map(|t| AnyTokenizer::Fast(Box::new(t))),
            Build::Slow(build) => build(folder, self.roles).map(|t| AnyTokenizer::Slow(Box::new(t))),
        }
    }
}

/// Parses a component as tokenizer.json spells it.
fn part<T: DeserializeOwned>(spelled: Value) -> Result<T, String> {
    serde_json::from_value(spelled).map_err(|e| e.to_string())
}

struct Parts {
    model: ModelWrapper,
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Value,
    decoder: Value,
}

fn assembled(parts: Parts) -> Result<Tokenizer, String> {
    let mut tokenizer = Tokenizer::new(parts.model);
    tokenizer.with_normalizer(parts.normalizer).map_err(|e| e.to_string())?;
    tokenizer.with_pre_tokenizer(Some(part::<PreTokenizerWrapper>(parts.pre_tokenizer)?));
    tokenizer.with_decoder(Some(part::<DecoderWrapper>(parts.decoder)?));
    Ok(tokenizer)
}

fn named(folder: &Folder, roles: Roles, role: &str) -> Result<String, String> {
    folder
        .token(role, default_of(roles, role))
        .map(|t| t.content)
        .ok_or_else(|| format!("it has no {role}"))
}

fn id_of(tokenizer: &Tokenizer, token: &str) -> Result<u32, String> {
    tokenizer
        .token_to_id(token)
        .ok_or_else(|| format!("the vocabulary lacks \"{token}\""))
}

/// Sets a template of "A", "B" and special tokens, each with its type id.
fn template(tokenizer: &mut Tokenizer, single: &[(&str, u32)], pair: &[(&str, u32)]) -> Result<(), String> {
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

fn roberta_template(
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
fn ends_template(tokenizer: &mut Tokenizer, folder: &Folder, roles: Roles, bos: bool, eos: bool) -> Result<(), String> {
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

fn word_piece(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let vocab = file(folder, &["vocab.txt"])?;
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
        decoder: json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
    })?;
    folder.add_tokens(&mut tokenizer, roles, folder.extra_tokens())?;
    Ok(tokenizer)
}

fn bert(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let mut tokenizer = word_piece(folder, roles)?;
    let (cls, sep) = (named(folder, roles, "cls_token")?, named(folder, roles, "sep_token")?);
    template(
        &mut tokenizer,
        &[(&cls, 0), ("A", 0), (&sep, 0)],
        &[(&cls, 0), ("A", 0), (&sep, 0), ("B", 1), (&sep, 1)],
    )?;
    Ok(tokenizer)
}

fn mpnet(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let mut tokenizer = word_piece(folder, roles)?;
    let mask = named(folder, roles, "mask_token")?;
    if !folder.added.values().any(|t| t.content == mask) {
        // The mask token takes the space before it.
        tokenizer
            .add_special_tokens([AddedToken::from(mask, true).lstrip(true)])
            .map_err(|e| e.to_string())?;
    }
    roberta_template(
        &mut tokenizer,
        &named(folder, roles, "cls_token")?,
        &named(folder, roles, "sep_token")?,
        true,
        false,
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

fn gpt2(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let mut tokenizer = byte_level(folder, roles, folder.flag("add_prefix_space", false))?;
    ends_template(&mut tokenizer, folder, roles, false, false)?;
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

fn openai_gpt(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let mut tokenizer = suffixed_pairs(folder, roles, true, None)?;
    ends_template(&mut tokenizer, folder, roles, false, false)?;
    Ok(tokenizer)
}

/// Builds HerBERT's tokenizer. The ids of the tokens around a text are 0 and 2, whatever the vocabulary says.
fn herbert(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let mut tokenizer = suffixed_pairs(folder, roles, false, Some(false))?;
    let (cls, sep) = (named(folder, roles, "cls_token")?, named(folder, roles, "sep_token")?);
    let ends = json!({"type": "BertProcessing", "sep": [sep, 2], "cls": [cls, 0]});
    tokenizer.with_post_processor(Some(part::<PostProcessorWrapper>(ends)?));
    Ok(tokenizer)
}

fn roberta(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
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

fn clip(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
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

fn sentence_piece(folder: &Folder) -> Result<SentencePiece, String> {
    let path = file(folder, PIECES[0])?;
    SentencePiece::parse(&read(path.as_ref())?).map_err(|e| format!("{path} cannot be read: {e}"))
}

/// Returns the pieces that the model itself separates from text.
fn kept_apart(model: &SentencePiece) -> Vec<AddedToken> {
    let apart = model
        .pieces
        .iter()
        .filter(|p| p.kind == CONTROL || p.kind == USER_DEFINED);
    apart
        .map(|p| AddedToken::from(p.text.clone(), p.kind == CONTROL).normalized(false))
        .collect()
}

fn charsmap(model: &SentencePiece) -> Result<Option<NormalizerWrapper>, String> {
    if model.charsmap.is_empty() {
        return Ok(None);
    }
    Precompiled::from(&model.charsmap)
        .map(|p| Some(p.into()))
        .map_err(|e| format!("the character map cannot be read: {e}"))
}

fn unigram(vocab: Vec<(String, f64)>, unk_id: usize) -> Result<ModelWrapper, String> {
    Unigram::from(vocab, Some(unk_id), false)
        .map(ModelWrapper::from)
        .map_err(|e| e.to_string())
}

fn need_unigram(model: &SentencePiece) -> Result<(), String> {
    if model.model_type == 1 {
        Ok(())
    } else {
        Err(format!(
            "its SentencePiece model is of type {}, expected 1 (unigram)",
            model.model_type
        ))
    }
}

fn spaces(split_first: bool, scheme: &str) -> Value {
    let metaspace = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true});
    if split_first {
        json!({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]})
    } else {
        metaspace
    }
}

fn t5(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let model = sentence_piece(folder)?;
    need_unigram(&model)?;
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

fn albert(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let model = sentence_piece(folder)?;
    need_unigram(&model)?;
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
    let mut normalizers = steps
        .into_iter()
        .map(part::<NormalizerWrapper>)
        .collect::<Result<Vec<_>, _>>()?;
    normalizers.extend(charsmap(&model)?);
    let scheme = if folder.flag("add_prefix_space", true) {
        "always"
    } else {
        "never"
    };
    let mut tokenizer = assembled(Parts {
        model: unigram(model.scored(), model.unk_id)?,
        normalizer: Some(Sequence::new(normalizers).into()),
        pre_tokenizer: spaces(true, scheme),
        decoder: spaces(false, scheme),
    })?;
    let mut extra = kept_apart(&model);
    extra.extend(folder.extra_tokens());
    folder.add_tokens(&mut tokenizer, roles, extra)?;
    let (cls, sep) = (named(folder, roles, "cls_token")?, named(folder, roles, "sep_token")?);
    template(
        &mut tokenizer,
        &[(&cls, 0), ("A", 0), (&sep, 0)],
        &[(&cls, 0), ("A", 0), (&sep, 0), ("B", 1), (&sep, 1)],
    )?;
    Ok(tokenizer)
}

/// Builds Fairseq's numbering: its four special tokens, the pieces from the fourth on, the mask.
fn xlm_roberta(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let model = sentence_piece(folder)?;
    need_unigram(&model)?;
    let mut vocab = Vec::new();
    for role in ["bos_token", "pad_token", "eos_token", "unk_token"] {
        vocab.push((named(folder, roles, role)?, 0.0));
    }
    vocab.extend(model.scored().into_iter().skip(3));
    vocab.push((named(folder, roles, "mask_token")?, 0.0));
    let scheme = if folder.flag("add_prefix_space", true) {
        "always"
    } else {
        "never"
    };
    let mut tokenizer = assembled(Parts {
        model: unigram(vocab, 3)?,
        normalizer: charsmap(&model)?,
        pre_tokenizer: spaces(true, scheme),
        decoder: spaces(false, scheme),
    })?;
    let mut extra = kept_apart(&model);
    extra.extend(folder.extra_tokens());
    folder.add_tokens(&mut tokenizer, roles, extra)?;
    let (bos, eos) = (named(folder, roles, "bos_token")?, named(folder, roles, "eos_token")?);
    template(
        &mut tokenizer,
        &[(&bos, 0), ("A", 0), (&eos, 0)],
        &[(&bos, 0), ("A", 0), (&eos, 0), (&eos, 0), ("B", 0), (&eos, 0)],
    )?;
    Ok(tokenizer)
}

/// Adds the mask, which takes the space before it.
fn add_mask(tokenizer: &mut Tokenizer, folder: &Folder, roles: Roles) -> Result<(), String> {
    let mask = named(folder, roles, "mask_token")?;
    if !folder.added.values().any(|t| t.content == mask) {
        tokenizer
            .add_special_tokens([AddedToken::from(mask, true).lstrip(true)])
            .map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Builds CamemBERT's vocabulary: its own special tokens, the pieces from the second on, the mask.
fn camembert(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let model = sentence_piece(folder)?;
    need_unigram(&model)?;
    let mut vocab = vec![
        ("<s>NOTUSED".to_string(), 0.0),
        (named(folder, roles, "pad_token")?, 0.0),
        ("</s>NOTUSED".to_string(), 0.0),
        (named(folder, roles, "unk_token")?, 0.0),
        ("<unk>NOTUSED".to_string(), -100.0),
    ];
    vocab.extend(model.scored().into_iter().skip(1));
    vocab.push((named(folder, roles, "mask_token")?, 0.0));
    let scheme = if folder.flag("add_prefix_space", true) {
        "always"
    } else {
        "never"
    };
    let mut tokenizer = assembled(Parts {
        model: unigram(vocab, 3)?,
        normalizer: charsmap(&model)?,
        pre_tokenizer: spaces(true, scheme),
        decoder: spaces(false, scheme),
    })?;
    let mut extra = kept_apart(&model);
    extra.extend(folder.extra_tokens());
    folder.add_tokens(&mut tokenizer, roles, extra)?;
    add_mask(&mut tokenizer, folder, roles)?;
    let (bos, eos) = (named(folder, roles, "bos_token")?, named(folder, roles, "eos_token")?);
    template(
        &mut tokenizer,
        &[(&bos, 0), ("A", 0), (&eos, 0)],
        &[(&bos, 0), ("A", 0), (&eos, 0), (&eos, 0), ("B", 0), (&eos, 0)],
    )?;
    Ok(tokenizer)
}

/// Builds BARThez' tokenizer: the model's own numbers, of which 3 is the unknown piece. It has no template.
fn barthez(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let model = sentence_piece(folder)?;
    need_unigram(&model)?;
    if model.pieces.len() <= 3 {
        return Err(format!(
            "its SentencePiece model has {} pieces, expected 4 or more",
            model.pieces.len()
        ));
    }
    let scheme = if folder.flag("add_prefix_space", true) {
        "always"
    } else {
        "never"
    };
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
    let mut extra = kept_apart(&model);
    extra.extend(folder.extra_tokens());
    folder.add_tokens(&mut tokenizer, roles, extra)?;
    add_mask(&mut tokenizer, folder, roles)?;
    ends_template(&mut tokenizer, folder, roles, false, false)?;
    Ok(tokenizer)
}

fn funnel(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let mut tokenizer = word_piece(folder, roles)?;
    let (cls, sep) = (named(folder, roles, "cls_token")?, named(folder, roles, "sep_token")?);
    template(
        &mut tokenizer,
        &[(&cls, 2), ("A", 0), (&sep, 0)],
        &[(&cls, 2), ("A", 0), (&sep, 0), ("B", 1), (&sep, 1)],
    )?;
    Ok(tokenizer)
}

fn deberta(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let mut tokenizer = byte_level(folder, roles, folder.flag("add_prefix_space", false))?;
    let (cls, sep) = (named(folder, roles, "cls_token")?, named(folder, roles, "sep_token")?);
    template(
        &mut tokenizer,
        &[(&cls, 0), ("A", 0), (&sep, 0)],
        &[(&cls, 0), ("A", 0), (&sep, 0), (&sep, 0), ("B", 0), (&sep, 0)],
    )?;
    Ok(tokenizer)
}

/// Returns the number of the unknown piece, which transformers finds by its name and score.
fn unknown_piece(folder: &Folder, roles: Roles, model: &SentencePiece, otherwise: usize) -> Result<usize, String> {
    let unk = named(folder, roles, "unk_token")?;
    let found = model.pieces.iter().position(|p| p.text == unk && p.score == 0.0);
    Ok(found.unwrap_or(otherwise))
}

/// Sets "[CLS] A [SEP] B [SEP]" with the types of BERT.
fn bert_template(tokenizer: &mut Tokenizer, folder: &Folder, roles: Roles) -> Result<(), String> {
    let (cls, sep) = (named(folder, roles, "cls_token")?, named(folder, roles, "sep_token")?);
    template(
        tokenizer,
        &[(&cls, 0), ("A", 0), (&sep, 0)],
        &[(&cls, 0), ("A", 0), (&sep, 0), ("B", 1), (&sep, 1)],
    )
}

fn sequence(steps: &[Value]) -> Value {
    json!({"type": "Sequence", "normalizers": steps})
}

/// Builds the tokenizer of DeBERTa-v2 and v3. The model's own character map is not applied, as in transformers.
fn deberta_v2(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let model = sentence_piece(folder)?;
    need_unigram(&model)?;
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
    let mut extra = kept_apart(&model);
    extra.extend(folder.extra_tokens());
    folder.add_tokens(&mut tokenizer, roles, extra)?;
    bert_template(&mut tokenizer, folder, roles)?;
    Ok(tokenizer)
}

fn xlnet(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let model = sentence_piece(folder)?;
    need_unigram(&model)?;
    let mut steps = vec![
        json!({"type": "Replace", "pattern": {"String": "``"}, "content": "\""}),
        json!({"type": "Replace", "pattern": {"String": "''"}, "content": "\""}),
        json!({"type": "NFKD"}),
        json!({"type": "StripAccents"}),
    ];
    if folder.flag("do_lower_case", false) {
        steps.push(json!({"type": "Lowercase"}));
    }
    let mut normalizers = steps
        .into_iter()
        .map(part::<NormalizerWrapper>)
        .collect::<Result<Vec<_>, _>>()?;
    normalizers.extend(charsmap(&model)?);
    let mut tokenizer = assembled(Parts {
        model: unigram(model.scored(), model.unk_id)?,
        normalizer: Some(Sequence::new(normalizers).into()),
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
fn reformer(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let model = sentence_piece(folder)?;
    let ids: HashMap<&str, u32> = model
        .pieces
        .iter()
        .zip(0..)
        .map(|(p, id)| (p.text.as_str(), id))
        .collect();
    let vocab: ahash::AHashMap<String, u32> = ids.iter().map(|(text, id)| (text.to_string(), *id)).collect();
    let bpe = BPE::builder()
        .vocab_and_merges(vocab, model.merges(&ids))
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
    let mut extra = kept_apart(&model);
    extra.extend(folder.extra_tokens());
    folder.add_tokens(&mut tokenizer, roles, extra)?;
    ends_template(&mut tokenizer, folder, roles, false, false)?;
    Ok(tokenizer)
}

fn big_bird(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let model = sentence_piece(folder)?;
    need_unigram(&model)?;
    let scheme = if folder.flag("add_prefix_space", true) {
        "always"
    } else {
        "never"
    };
    // The unknown piece of the published model is number 100.
    let unk = unknown_piece(folder, roles, &model, 100)?;
    let steps = [json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"})];
    let mut tokenizer = assembled(Parts {
        model: unigram(model.scored(), unk)?,
        normalizer: Some(part(sequence(&steps))?),
        pre_tokenizer: spaces(false, scheme),
        decoder: spaces(false, scheme),
    })?;
    let mut extra = kept_apart(&model);
    extra.extend(folder.extra_tokens());
    folder.add_tokens(&mut tokenizer, roles, extra)?;
    add_mask(&mut tokenizer, folder, roles)?;
    bert_template(&mut tokenizer, folder, roles)?;
    Ok(tokenizer)
}

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
    let model = sentence_piece(folder)?;
    need_unigram(&model)?;
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

/// Collapses runs of spaces after the model's own character map.
fn single_spaces(model: &SentencePiece) -> Result<Option<NormalizerWrapper>, String> {
    let mut steps: Vec<NormalizerWrapper> = charsmap(model)?.into_iter().collect();
    steps.push(part(
        json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}),
    )?);
    Ok(Some(Sequence::new(steps).into()))
}

fn mbart(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
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

fn mbart50(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
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
fn pegasus(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let model = sentence_piece(folder)?;
    need_unigram(&model)?;
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

fn blenderbot(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let mut tokenizer = byte_level(folder, roles, folder.flag("add_prefix_space", true))?;
    let mask = named(folder, roles, "mask_token")?;
    if !folder.added.values().any(|t| t.content == mask) {
        tokenizer
            .add_special_tokens([AddedToken::from(mask, true).lstrip(true)])
            .map_err(|e| e.to_string())?;
    }
    ends_template(&mut tokenizer, folder, roles, false, false)?;
    Ok(tokenizer)
}

fn llama(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let model = sentence_piece(folder)?;
    if model.model_type != 2 {
        return Err(format!(
            "its SentencePiece model is of type {}, expected 2 (BPE)",
            model.model_type
        ));
    }
    let ids: HashMap<&str, u32> = model
        .pieces
        .iter()
        .zip(0..)
        .map(|(p, id)| (p.text.as_str(), id))
        .collect();
    let vocab: ahash::AHashMap<String, u32> = ids.iter().map(|(text, id)| (text.to_string(), *id)).collect();
    let bpe = BPE::builder()
        .vocab_and_merges(vocab, model.merges(&ids))
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
    let mut extra = kept_apart(&model);
    extra.extend(folder.extra_tokens());
    folder.add_tokens(&mut tokenizer, roles, extra)?;
    ends_template(&mut tokenizer, folder, roles, true, false)?;
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

/// ByT5 has no vocabulary: pad, eos, unk, then one id per byte, then the sentinels.
fn byt5(folder: &Folder, roles: Roles) -> Result<Tokenizer, String> {
    let ends = [
        named(folder, roles, "pad_token")?,
        named(folder, roles, "eos_token")?,
        named(folder, roles, "unk_token")?,
    ];
    let vocab: ahash::AHashMap<String, u32> = ends
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
    tokenizer
        .add_special_tokens(ends.map(|t| AddedToken::from(t, true).lstrip(true).rstrip(true)))
        .map_err(|e| e.to_string())?;
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
