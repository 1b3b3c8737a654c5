// SPDX-License-Identifier: Apache-2.0
//! Builds the slow tokenizer whose pieces follow special tokens and unused ones that the SentencePiece model does not
//! have (XLM-ProphetNet, `tokenization_xlm_prophetnet.py` of transformers 4).
use super::*;

/// The model's first pieces: unknown, begin, end. The unknown one and those with the numbers of unused tokens are not
/// looked up.
const OWN_SPECIAL: usize = 3;
const UNUSED: usize = 10;

impl SlowTokenizer {
    /// Builds it from prophetnet.tokenizer, a SentencePiece model. A text ends with a separator.
    pub fn offset_pieces(folder: &Folder, roles: Roles) -> Result<Self, String> {
        let name = "prophetnet.tokenizer";
        let path = file(folder, &[name])?;
        let pieces = SentencePiece::parse(&read(path.as_ref())?)
            .map_err(|e| format!("{path} cannot be read: {e}"))?
            .pieces;
        let first = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"].map(str::to_string);
        let unused = (0..UNUSED).map(|i| format!("[unused{i}]"));
        let own = pieces.into_iter().skip(OWN_SPECIAL).map(|piece| piece.text);
        let ids: HashMap<String, u32> = first.into_iter().chain(unused).chain(own).zip(0..).collect();
        let splitter = Splitter::Pieces {
            cuts: processor(folder, &[name])?,
            joins: processor(folder, &[name])?,
            spelling: Spelling::Joined,
        };
        let shown = ids.clone();
        let mut made = Self::new(folder, roles, splitter, ids, shown)?;
        let sep = made.special_role(folder, roles, "sep_token")?;
        made.template = Template {
            prefix: Vec::new(),
            between: vec![sep],
            suffix: vec![sep],
            typed: false,
        };
        Ok(made)
    }
}
