// SPDX-License-Identifier: Apache-2.0
//! Table of the tokenizer classes that are built from files older than tokenizer.json, with the builder and the special
//! tokens of each. The oracle is transformers 5 (`models/*/tokenization_*.py`); components are written as
//! tokenizer.json spells them.
use crate::any_tokenizer::AnyTokenizer;
use crate::folder::{Folder, Roles};
use crate::japanese_splitter::japanese_ids_only;
use crate::language_builders::{mbart, mbart50, pegasus};
use crate::piece_builders::*;
use crate::slow_tokenizer::{translated_languages, SlowTokenizer};
use crate::word_builders::*;
use tokenizers::Tokenizer;

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
const PROPHETNET: Roles = &[
    ("unk_token", "[UNK]"),
    ("sep_token", "[SEP]"),
    ("pad_token", "[PAD]"),
    ("mask_token", "[MASK]"),
];
const XLM_PROPHETNET: Roles = &[
    ("bos_token", "[SEP]"),
    ("eos_token", "[SEP]"),
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
/// In the order of their ids.
const PERCEIVER: Roles = &[
    ("pad_token", "[PAD]"),
    ("bos_token", "[BOS]"),
    ("eos_token", "[EOS]"),
    ("mask_token", "[MASK]"),
    ("cls_token", "[CLS]"),
    ("sep_token", "[SEP]"),
];
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
const WHOLE_WORDS: Roles = &[("eos_token", "<eos>"), ("unk_token", "<unk>")];
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
const SPEECH: Roles = &[
    ("bos_token", "<s>"),
    ("eos_token", "</s>"),
    ("unk_token", "<unk>"),
    ("pad_token", "<pad>"),
];
const M2M100: Roles = &[
    ("bos_token", "<s>"),
    ("eos_token", "</s>"),
    ("unk_token", "<unk>"),
    ("sep_token", "</s>"),
    ("pad_token", "<pad>"),
];

const WORDS: &[&[&str]] = &[&["vocab.txt"]];
const WORDS_OR_PICKLE: &[&[&str]] = &[&["vocab.txt", "vocab.pkl"]];
const PROPHETNET_FILE: &[&[&str]] = &[&["prophetnet.tokenizer"]];
const PAIRS: &[&[&str]] = &[&["vocab.json"], &["merges.txt"]];
const TRANSLATION: &[&[&str]] = &[&["vocab-src.json"], &["vocab-tgt.json"], &["merges.txt"]];
const COUNTED: &[&[&str]] = &[&["vocab.txt"], &["bpe.codes"]];
pub const PIECES: &[&[&str]] = &[&[
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
        classes: &["BertJapaneseTokenizer"],
        model_types: &[],
        files: &[],
        roles: BERT,
        build: Build::Slow(SlowTokenizer::japanese),
    },
    TokenizerClass {
        classes: &["ProphetNetTokenizer"],
        model_types: &["prophetnet"],
        files: PROPHETNET_FILE,
        roles: PROPHETNET,
        build: Fast(prophetnet),
    },
    TokenizerClass {
        classes: &["XLMProphetNetTokenizer"],
        model_types: &["xlm-prophetnet"],
        files: PROPHETNET_FILE,
        roles: XLM_PROPHETNET,
        build: Build::Slow(SlowTokenizer::offset_pieces),
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
        model_types: &["roberta", "ibert", "bart", "longformer", "led"],
        files: PAIRS,
        roles: ROBERTA,
        build: Fast(roberta),
    },
    TokenizerClass {
        classes: &["LukeTokenizer"],
        model_types: &["luke"],
        files: PAIRS,
        roles: ROBERTA,
        build: Fast(entity_marks),
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
        classes: &["PerceiverTokenizer"],
        model_types: &[],
        files: &[],
        roles: PERCEIVER,
        build: Fast(perceiver),
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
        classes: &["Speech2TextTokenizer"],
        model_types: &["speech_to_text"],
        files: VOCAB_AND_PIECES,
        roles: SPEECH,
        build: Build::Slow(SlowTokenizer::speech),
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
        classes: &["TransfoXLTokenizer"],
        model_types: &["transfo-xl"],
        files: WORDS_OR_PICKLE,
        roles: WHOLE_WORDS,
        build: Build::Slow(SlowTokenizer::whole_words),
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
        if self.classes.contains(&"ProphetNetTokenizer") && !folder.flag("do_basic_tokenize", true) {
            return Some("tokenizer_config.json has do_basic_tokenize false, which is not built".into());
        }
        if self.classes.contains(&"BertJapaneseTokenizer") {
            return japanese_ids_only(folder);
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
