// SPDX-License-Identifier: Apache-2.0
//! Constrained generation: which tokens may come next so that the text follows a JSON Schema, a regular expression, one
//! of several texts or a grammar. The work is llguidance's; this module bounds it and makes its vocabulary.
use crate::any_tokenizer::AnyTokenizer;
use crate::json_schema::{held_schema, json_schema};
use crate::token_bytes::{token_bytes, TokenBytes};
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::{Matcher, ParserFactory};
use regex::Regex;
use serde_json::{Deserializer, Value};
use std::sync::{Arc, OnceLock};
use toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};

/// Longest text of a constraint.
const MAX_BYTES: usize = 128 << 10;
/// Longest text of a reply's grammar, which has the schemas of several tools.
const MAX_REPLY_BYTES: usize = 1 << 20;
/// The kind that is a reply's grammar (reply/constrain.rs) as llguidance serializes it.
const REPLY: u32 = 4;
/// Longest error that is shown.
const MAX_ERROR: usize = 400;
/// Rules that name each other are compiled by recursion; only the pages that are used take memory.
const STACK_BYTES: usize = 256 << 20;

/// The vocabulary of a tokenizer as a trie, with the id after the last for the end of the text.
pub struct Vocabulary {
    factory: ParserFactory,
    begins_text: Arc<Vec<bool>>,
    /// The special tokens by their texts.
    special: Vec<(String, u32)>,
}

/// The state of one text.
pub struct TokenMatcher {
    matcher: Matcher,
    /// Of a text that has no token yet and begins at nothing: the ids that have their bytes there.
    first: Option<Arc<Vec<bool>>>,
}

/// Limits of one constraint: about 20 ms for a mask at worst, and 100 MiB of lexer states.
pub fn limits() -> ParserLimits {
    ParserLimits {
        max_lexer_states: 50_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// Returns the first part of an error of the library, without what it adds for its own debugging and without an option
/// that a request does not have.
fn message(error: impl std::fmt::Display) -> String {
    let all = error.to_string().replace(
        "oneOf constraints are not supported. Enable 'coerce_one_of' option to approximate oneOf with anyOf",
        "oneOf is not supported where a value may follow several of its schemas; use anyOf",
    );
    let end = ["\n<non-verbose/>", "\n<backtrace>", "\n<state>"]
        .iter()
        .filter_map(|mark| all.find(mark))
        .min()
        .unwrap_or(all.len());
    let mut text: String = all[..end].trim().chars().take(MAX_ERROR).collect();
    if text.len() < all[..end].trim().len() {
        text.push_str("...");
    }
    text
}

impl Vocabulary {
    pub fn build(tokenizer: &AnyTokenizer) -> Result<Self, String> {
        let TokenBytes { mut bytes, begins_text } = token_bytes(tokenizer)
            .map_err(|reason| format!("constraints are not supported for this model's tokenizer: {reason}"))?;
        let end = bytes.len() as u32;
        let special = (0..end).filter(|id| bytes[*id as usize].first() == Some(&0xFF));
        let special = special.map(|id| (tokenizer.id_to_token(id), id)).collect();
        bytes.push(b"\xFF<end of the text>".to_vec());
        let trie = TokTrie::from(&TokRxInfo::new(end + 1, end), &bytes);
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let capabilities = InferenceCapabilities::default();
        let mut factory =
            ParserFactory::new(&environment, capabilities, &SlicedBiasComputer::json_slices()).map_err(message)?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(Vocabulary {
            factory,
            begins_text: Arc::new(begins_text),
            special,
        })
    }

    pub fn size(&self) -> usize {
        self.end() as usize
    }

    /// Returns the special tokens by their texts.
    pub fn special(&self) -> &[(String, u32)] {
        &self.special
    }

    fn end(&self) -> u32 {
        self.factory.tok_env().tok_trie().eos_token()
    }

    /// Compiles a constraint of a kind: 0 JSON Schema, 1 regular expression, 2 an array of texts in JSON, 3 Lark
    /// grammar, 4 the grammar of a reply. `at_start`: the text begins at nothing, so that decoders drop its leading
    /// space.
    pub fn compile(&self, kind: u32, text: &str, at_start: bool) -> Result<TokenMatcher, String> {
        let most = if kind == REPLY { MAX_REPLY_BYTES } else { MAX_BYTES };
        if text.len() > most {
            return Err(format!("it has {} bytes; at most {most} are compiled", text.len()));
        }
        let compiled = std::thread::scope(|scope| {
            std::thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, || self.matcher(kind, text))
                .map_err(|error| format!("no thread can be started to compile it: {error}"))?
                .join()
                .map_err(|_| "the library panicked".to_string())?
        });
        Ok(TokenMatcher {
            matcher: compiled?,
            first: at_start.then(|| self.begins_text.clone()),
        })
    }

    fn matcher(&self, kind: u32, text: &str) -> Result<Matcher, String> {
        let grammar = grammar(kind, text)?;
        let mut matcher = Matcher::new(self.factory.create_parser(grammar));
        if let Some(error) = matcher.get_error() {
            return Err(message(error));
        }
        // A warning is something that the text would not be held to.
        match matcher.grammar_warnings().first() {
            Some(warning) => Err(message(warning)),
            None => Ok(matcher),
        }
    }
}

/// Returns the grammar of a constraint.
pub fn grammar(kind: u32, text: &str) -> Result<TopLevelGrammar, String> {
    match kind {
        0 => json_schema(text),
        1 => regular_expression(text),
        2 => choice(text),
        3 => Ok(TopLevelGrammar::from_lark(with_held_schemas(text)?)),
        REPLY => serde_json::from_str(text).map_err(|error| format!("it is no grammar of a reply: {error}")),
        _ => Err(format!("{kind} is no kind of constraint")),
    }
}

/// Returns a grammar in Lark's syntax whose schemas, behind `%json`, are those that llguidance has to read.
fn with_held_schemas(text: &str) -> Result<String, String> {
    static TOKENS: OnceLock<Regex> = OnceLock::new();
    // what may contain the letters of the keyword: strings, comments, expressions and special tokens
    let tokens = TOKENS
        .get_or_init(|| Regex::new(r#""(?:\\.|[^"\\])*"|(?:#|//)[^\n]*|/(?:\\.|[^/\\])+/|<[^<>\s]+>|%json"#).unwrap());
    let (mut held, mut at) = (String::new(), 0);
    while let Some(token) = tokens.find_at(text, at) {
        held.push_str(&text[at..token.end()]);
        at = token.end();
        if token.as_str() == "%json" {
            let mut values = Deserializer::from_str(&text[at..]).into_iter::<Value>();
            let schema = values.next().ok_or("%json has no schema")?;
            let schema = schema.map_err(|error| format!("%json is not followed by JSON: {error}"))?;
            at += values.byte_offset();
            held.push_str(&format!(" {} ", held_schema(schema)?));
        }
    }
    held.push_str(&text[at..]);
    Ok(held)
}

fn regular_expression(text: &str) -> Result<TopLevelGrammar, String> {
    if text.is_empty() {
        return Err("it is empty".into());
    }
    // llguidance would drop it
    if text.bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 1 {
        return Err("it ends in a backslash that escapes nothing".into());
    }
    Ok(TopLevelGrammar::from_regex(text))
}

fn choice(text: &str) -> Result<TopLevelGrammar, String> {
    let texts: Vec<String> = serde_json::from_str(text).map_err(|e| format!("it is no array of texts: {e}"))?;
    if texts.is_empty() || texts.iter().any(String::is_empty) {
        return Err("it needs at least one text, and none of them empty".into());
    }
    let quoted: Vec<String> = texts.iter().map(|one| regex::escape(one)).collect();
    Ok(TopLevelGrammar::from_regex(&quoted.join("|")))
}

impl TokenMatcher {
    /// Returns a copy that shares nothing with this one.
    pub fn fork(&self) -> Self {
        TokenMatcher {
            matcher: self.matcher.deep_clone(),
            first: self.first.clone(),
        }
    }

    /// Writes a bit for each id that may come next; bits beyond the vocabulary are 0. Returns whether the text may end
    /// here.
    pub fn mask(&mut self, vocabulary: &Vocabulary, words: &mut [u32]) -> Result<bool, String> {
        let mask = self.matcher.compute_mask().map_err(message)?;
        let end = vocabulary.end() as usize;
        let may_end = mask.get(end);
        words.fill(0);
        for (word, allowed) in words.iter_mut().zip(mask.as_slice()) {
            *word = *allowed;
        }
        if let Some(word) = words.get_mut(end / 32) {
            *word &= !(1 << (end % 32));
        }
        if let Some(first) = &self.first {
            for (id, begins) in first.iter().enumerate() {
                if let (false, Some(word)) = (begins, words.get_mut(id / 32)) {
                    *word &= !(1 << (id % 32));
                }
            }
        }
        Ok(may_end)
    }

    /// Appends a token that the mask allowed. Returns whether the text ends with it, because nothing may follow.
    pub fn append(&mut self, vocabulary: &Vocabulary, id: u32) -> Result<bool, String> {
        if id >= vocabulary.end() {
            return Err(format!("token {id} is not in the vocabulary"));
        }
        self.matcher.consume_token(id).map_err(message)?;
        self.first = None;
        if !self.matcher.is_stopped() {
            return Ok(false);
        }
        let reason = self.matcher.stop_reason();
        if reason.is_ok() {
            Ok(true)
        } else {
            Err(format!("the constraint stopped: {reason}"))
        }
    }
}
