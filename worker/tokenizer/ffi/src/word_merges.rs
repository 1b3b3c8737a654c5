// SPDX-License-Identifier: Apache-2.0
//! Byte-pair encoding of whole words over their characters, where the last character carries "</w>", as transformers'
//! Python tokenizers do it (`bpe` in `models/{ctrl,phobert,bertweet,blenderbot_small,xlm,fsmt}/tokenization_*.py`).
//! The tokenizers crate merges one occurrence at a time, Python all occurrences of the best pair in one round. The two
//! differ where a merge makes a pair of lower rank, so this module follows Python.
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

pub const END_OF_WORD: &str = "</w>";

/// Number of a symbol that no merge has.
const UNKNOWN: u32 = u32::MAX;
/// End of the list of symbols.
const NONE: usize = usize::MAX;

#[derive(Default)]
pub struct WordMerges {
    symbols: HashMap<String, u32>,
    /// pair of symbols -> rank and merged symbol
    merges: HashMap<(u32, u32), (u32, u32)>,
}

struct Symbol {
    begin: usize,
    end: usize,
    number: u32,
    before: usize,
    after: usize,
}

impl WordMerges {
    /// Builds the table from pairs in the order of their rank. Of equal pairs the last one counts.
    pub fn new<'a>(pairs: impl Iterator<Item = Option<(&'a str, &'a str)>>) -> Self {
        let mut made = WordMerges::default();
        for (pair, rank) in pairs.zip(0..) {
            let Some((left, right)) = pair else { continue };
            let merged = made.number(&[left, right].concat());
            let pair = (made.number(left), made.number(right));
            made.merges.insert(pair, (rank, merged));
        }
        made
    }

    fn number(&mut self, symbol: &str) -> u32 {
        if let Some(number) = self.symbols.get(symbol) {
            return *number;
        }
        let next = u32::try_from(self.symbols.len()).unwrap_or(UNKNOWN);
        self.symbols.insert(symbol.to_string(), next);
        next
    }

    /// Splits a word into symbols. Their concatenation is the word and "</w>"; an empty word has no symbols.
    pub fn split(&self, word: &str) -> Vec<String> {
        let whole = [word, END_OF_WORD].concat();
        let mut symbols: Vec<Symbol> = Vec::new();
        for (begin, c) in word.char_indices() {
            let end = begin + c.len_utf8();
            let end = if end == word.len() { whole.len() } else { end };
            let here = symbols.len();
            symbols.push(Symbol {
                begin,
                end,
                number: self.symbols.get(&whole[begin..end]).copied().unwrap_or(UNKNOWN),
                before: here.checked_sub(1).unwrap_or(NONE),
                after: if end == whole.len() { NONE } else { here + 1 },
            });
        }
        self.merge(&mut symbols);
        let mut out = Vec::new();
        let mut at = if symbols.is_empty() { NONE } else { 0 };
        while at != NONE {
            out.push(whole[symbols[at].begin..symbols[at].end].to_string());
            at = symbols[at].after;
        }
        out
    }

    /// Returns the rank of the pair that begins at a symbol.
    fn rank(&self, symbols: &[Symbol], at: usize) -> Option<(u32, u32)> {
        let after = symbols.get(symbols[at].after)?;
        self.merges.get(&(symbols[at].number, after.number)).copied()
    }

    fn merge(&self, symbols: &mut [Symbol]) {
        let mut queue: BinaryHeap<Reverse<(u32, usize)>> = BinaryHeap::new();
        for at in 0..symbols.len() {
            queue.extend(self.rank(symbols, at).map(|(rank, _)| Reverse((rank, at))));
        }
        while let Some(Reverse((round, _))) = queue.peek().copied() {
            let mut changed = Vec::new();
            while let Some(Reverse((rank, at))) = queue.peek().copied() {
                if rank != round {
                    break;
                }
                queue.pop();
                // An entry is out of date where one of its symbols has been merged since.
                let Some((_, merged)) = self.rank(symbols, at).filter(|(now, _)| *now == round) else {
                    continue;
                };
                let next = symbols[at].after;
                symbols[at].end = symbols[next].end;
                symbols[at].number = merged;
                symbols[at].after = symbols[next].after;
                symbols[next].number = UNKNOWN;
                if let Some(after) = symbols.get_mut(symbols[next].after) {
                    after.before = at;
                }
                symbols[next].after = NONE;
                changed.push(at);
            }
            for at in changed {
                for begin in [symbols[at].before, at] {
                    if begin != NONE {
                        queue.extend(self.rank(symbols, begin).map(|(rank, _)| Reverse((rank, begin))));
                    }
                }
            }
        }
    }
}
