// SPDX-License-Identifier: Apache-2.0
//! Splits text into the words of least cost, as MeCab 0.996 does: words of a dictionary and unknown words begin at each
//! place, a word costs something by itself and beside its neighbor, and the cheapest row of words through the text is
//! found from left to right (Viterbi). Of equal costs MeCab's order decides.
use crate::mecab_dictionary::{Character, Dictionary, Word};

/// End of a list of nodes.
const NONE: u32 = u32::MAX;
/// Limit of a text, by which bytes are numbered and memory is bounded.
const MAX_TEXT_BYTES: usize = 64 << 20;

/// A word at a place of the text, with the cheapest row of words up to it.
struct Node {
    cost: i64,
    /// the node before it in that row
    before: u32,
    /// the next node that ends at the same place
    next: u32,
    /// where it begins and ends in the text
    begin: u32,
    end: u32,
    right: u16,
}

pub struct MeCab {
    dictionary: Dictionary,
}

/// The nodes that were made so far; `ends` has the first one that ends at each byte. The newest stands first.
struct Lattice {
    nodes: Vec<Node>,
    ends: Vec<u32>,
}

impl Lattice {
    /// Adds a node. Of nodes with the same end and the same costs towards the right, only the one that MeCab would choose
    /// is retained: the cheapest, and the newest of those.
    fn add(&mut self, node: Node) {
        let first = self.ends[node.end as usize];
        let (mut at, mut before) = (first, NONE);
        while at != NONE && self.nodes[at as usize].right != node.right {
            (before, at) = (at, self.nodes[at as usize].next);
        }
        if at == NONE {
            at = self.nodes.len() as u32;
            self.ends[node.end as usize] = at;
            self.nodes.push(Node { next: first, ..node });
            return;
        }
        let old = &self.nodes[at as usize];
        if node.cost > old.cost {
            return;
        }
        let behind = old.next;
        if before == NONE {
            self.nodes[at as usize] = Node { next: behind, ..node };
        } else {
            self.nodes[before as usize].next = behind;
            self.ends[node.end as usize] = at;
            self.nodes[at as usize] = Node { next: first, ..node };
        }
    }

    /// Returns the cheapest node that ends at a place, before a word with `left`, and the cost of both.
    fn cheapest(&self, place: usize, left: u16, dictionary: &Dictionary) -> Option<(u32, i64)> {
        let mut best = None;
        let mut at = self.ends[place];
        while at != NONE {
            let node = &self.nodes[at as usize];
            let cost = node.cost + dictionary.cost(node.right, left);
            if best.is_none_or(|(_, least)| cost < least) {
                best = Some((at, cost));
            }
            at = node.next;
        }
        best
    }
}

impl MeCab {
    pub fn new(dictionary: Dictionary) -> Self {
        MeCab { dictionary }
    }

    /// Returns the words of a text, without the spaces between them. Like MeCab's, a text ends before a null character.
    pub fn words<'a>(&self, text: &'a str) -> Result<Vec<&'a str>, String> {
        let text = &text[..text.find('\0').unwrap_or(text.len())];
        if text.len() > MAX_TEXT_BYTES {
            return Err(format!(
                "a text has {} bytes; MeCab gets at most {MAX_TEXT_BYTES}",
                text.len()
            ));
        }
        let mut lattice = Lattice {
            nodes: vec![Node {
                cost: 0,
                before: NONE,
                next: NONE,
                begin: 0,
                end: 0,
                right: 0,
            }],
            ends: vec![NONE; text.len() + 1],
        };
        lattice.ends[0] = 0;
        for (place, _) in text.char_indices() {
            if lattice.ends[place] != NONE {
                self.begin_words(text, place, &mut lattice);
            }
        }
        let last = (0..=text.len()).rev().find(|place| lattice.ends[*place] != NONE);
        let mut at = last
            .and_then(|place| lattice.cheapest(place, 0, &self.dictionary))
            .map_or(0, |(node, _)| node);
        let mut words = Vec::new();
        while at != 0 {
            let node = &lattice.nodes[at as usize];
            words.push(&text[node.begin as usize..node.end as usize]);
            at = node.before;
        }
        words.reverse();
        Ok(words)
    }

    /// Adds the words that begin at a place, behind the spaces there.
    fn begin_words(&self, text: &str, place: usize, lattice: &mut Lattice) {
        let space = self.dictionary.character(' ');
        let (skipped, _) = self.run(&text[place..], space);
        let begin = place + skipped;
        let Some(c) = text[begin..].chars().next() else {
            return; // nothing but spaces is left
        };
        let character = self.dictionary.character(c);
        let mut made: Vec<(usize, Word)> = Vec::new();
        self.dictionary.prefixes(&text[begin..], |length, words| {
            made.extend(words.iter().map(|word| (length, *word)));
        });
        if made.is_empty() || character.invoke {
            self.unknown_words(&text[begin..], c, character, &mut made);
        }
        // MeCab takes the last word first.
        for (length, word) in made.into_iter().rev() {
            let Some((before, cost)) = lattice.cheapest(place, word.left, &self.dictionary) else {
                continue;
            };
            lattice.add(Node {
                cost: cost + i64::from(word.cost),
                before,
                next: NONE,
                begin: begin as u32,
                end: (begin + length) as u32,
                right: word.right,
            });
        }
    }

    /// Returns the bytes and the number of characters at the beginning of a text each of which is like the one before it.
    fn run(&self, text: &str, mut last: Character) -> (usize, usize) {
        let mut count = 0;
        for (at, c) in text.char_indices() {
            let character = self.dictionary.character(c);
            if !last.is_like(character) {
                return (at, count);
            }
            last = character;
            count += 1;
        }
        (text.len(), count)
    }

    /// Appends the unknown words at the beginning of a text: all characters that are alike, then its first ones.
    fn unknown_words(&self, text: &str, first: char, character: Character, made: &mut Vec<(usize, Word)>) {
        let words = self.dictionary.unknown(character);
        let mut add = |length: usize| made.extend(words.iter().map(|word| (length, *word)));
        let mut end = first.len_utf8();
        let mut grouped = None;
        let mut any = false;
        if character.group {
            let (bytes, count) = self.run(&text[end..], character);
            grouped = Some(end + bytes);
            if count <= self.dictionary.max_group {
                add(end + bytes);
                any = true;
            }
        }
        for _ in 0..character.length {
            if grouped == Some(end) {
                continue;
            }
            add(end);
            any = true;
            let Some(c) = text[end..].chars().next() else { break };
            if !character.is_like(self.dictionary.character(c)) {
                break;
            }
            end += c.len_utf8();
        }
        if !any && made.is_empty() {
            made.extend(words.iter().map(|word| (end, *word)));
        }
    }
}
