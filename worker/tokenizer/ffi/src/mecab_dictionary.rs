// SPDX-License-Identifier: Apache-2.0
//! Reads a compiled dictionary of MeCab: words (sys.dic), unknown words by category (unk.dic), categories of characters
//! (char.bin), costs of neighbors (matrix.bin) and one setting (dicrc). These are the files that the Python packages
//! ipadic, unidic-lite and unidic have. The features of words are not read, since words are split without them.
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Limit of what is read of one file; UniDic's matrix has 460 MB.
const MAX_BYTES: u64 = 1 << 30;
/// What the first field of a dictionary is, exclusive-or its size.
const MAGIC: u32 = 0xef71_8f77;
const VERSION: u32 = 102;
const HEADER_BYTES: usize = 72;
/// Characters that char.bin has a row for; others have that of character 0.
const CHARACTERS: usize = 0xffff;
/// How many words may begin at one place.
const MAX_PREFIXES: usize = 512;
/// `max-grouping-size` without a line in dicrc.
const MAX_GROUP: usize = 24;

/// One word: what its neighbors' costs are looked up by, and its own cost.
#[derive(Clone, Copy)]
pub struct Word {
    pub left: u16,
    pub right: u16,
    pub cost: i16,
}

/// Words by their bytes, in a double array: unit `u` continues with byte `b` in unit `base(u) + b + 1`, and has words
/// where unit `base(u)` holds a negative number.
struct Words {
    units: Vec<(i32, u32)>,
    words: Vec<Word>,
}

/// What a character is. `kinds` has a bit for each category.
#[derive(Clone, Copy)]
pub struct Character {
    pub kinds: u32,
    /// the category whose unknown words begin here
    pub category: usize,
    /// unknown words have one to so many characters
    pub length: usize,
    /// whether all characters of a kind that follow each other are an unknown word
    pub group: bool,
    /// whether there are unknown words beside known ones
    pub invoke: bool,
}

pub struct Dictionary {
    known: Words,
    /// unknown words by category
    unknown: Vec<Vec<Word>>,
    characters: Vec<u32>,
    costs: Vec<i16>,
    lefts: usize,
    pub max_group: usize,
}

fn word_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn half_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Reads the first `limit` bytes of a file of bounded size, and returns them with its size.
fn bytes_of(path: &Path, limit: impl FnOnce(&[u8]) -> u64) -> Result<(Vec<u8>, u64), String> {
    let failed = |e: std::io::Error| format!("cannot be read: {e}");
    let mut file = File::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    let mut bytes = Vec::new();
    (&mut file)
        .take(HEADER_BYTES as u64)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    let wanted = limit(&bytes).min(size);
    if wanted > MAX_BYTES {
        return Err(format!("has {wanted} bytes to read, expected at most {MAX_BYTES}"));
    }
    let more = wanted.saturating_sub(bytes.len() as u64);
    bytes.reserve_exact(more as usize);
    file.take(more).read_to_end(&mut bytes).map_err(failed)?;
    Ok((bytes, size))
}

impl Words {
    fn read(path: &Path, lefts: usize, rights: usize) -> Result<Self, String> {
        let sizes = |header: &[u8]| match header.len() >= HEADER_BYTES {
            true => [24, 28, 32].map(|at| u64::from(word_at(header, at))),
            false => [0; 3],
        };
        let (bytes, size) = bytes_of(path, |header| {
            let [units, words, _] = sizes(header);
            HEADER_BYTES as u64 + units + words
        })?;
        if bytes.len() < HEADER_BYTES || u64::from(word_at(&bytes, 0) ^ MAGIC) != size {
            return Err("is not a compiled dictionary of MeCab".into());
        }
        if word_at(&bytes, 4) != VERSION {
            return Err(format!("has version {}, expected {VERSION}", word_at(&bytes, 4)));
        }
        let charset = String::from_utf8_lossy(&bytes[40..HEADER_BYTES]);
        let charset = charset.trim_end_matches('\0');
        if !["utf-8", "utf8"].contains(&charset.to_lowercase().as_str()) {
            return Err(format!("is in \"{charset}\", expected UTF-8"));
        }
        let [units, words, features] = sizes(&bytes);
        if HEADER_BYTES as u64 + units + words + features != size || units % 8 != 0 || words % 16 != 0 {
            return Err(format!("has parts of {units}, {words} and {features} bytes in {size}"));
        }
        if (word_at(&bytes, 16) as usize, word_at(&bytes, 20) as usize) != (lefts, rights) {
            return Err("and matrix.bin are of different dictionaries".into());
        }
        let (units, words) = bytes[HEADER_BYTES..].split_at(units as usize);
        let made = Words {
            units: units
                .chunks_exact(8)
                .map(|unit| (word_at(unit, 0) as i32, word_at(unit, 4)))
                .collect(),
            words: words
                .chunks_exact(16)
                .map(|word| Word {
                    left: half_at(word, 0),
                    right: half_at(word, 2),
                    cost: half_at(word, 6) as i16,
                })
                .collect(),
        };
        let outside = |word: &Word| usize::from(word.right) >= lefts || usize::from(word.left) >= rights;
        if made.words.iter().any(outside) {
            return Err("has a word without costs in matrix.bin".into());
        }
        Ok(made)
    }

    /// Returns the unit that follows `base` by `step`.
    fn follow(&self, base: i32, step: u32) -> Option<i32> {
        let unit = self.units.get((base as u32).checked_add(step)? as usize)?;
        (unit.1 == base as u32).then_some(unit.0)
    }

    fn ending(&self, base: i32) -> &[Word] {
        let Some(found) = self.follow(base, 0).filter(|found| *found < 0) else {
            return &[];
        };
        let value = -(i64::from(found) + 1) as usize;
        let (first, count) = (value >> 8, value & 0xff);
        self.words.get(first..first + count).unwrap_or_default()
    }

    /// Calls `take` with the length and the words of each beginning of `text`, shortest first.
    fn prefixes<'a>(&'a self, text: &[u8], mut take: impl FnMut(usize, &'a [Word])) {
        let Some(mut base) = self.units.first().map(|unit| unit.0) else {
            return;
        };
        let mut found = 0;
        for (length, byte) in text.iter().map(Some).chain([None]).enumerate() {
            let words = self.ending(base);
            if !words.is_empty() {
                take(length, words);
                found += 1;
            }
            let Some(next) = byte.and_then(|byte| self.follow(base, u32::from(*byte) + 1)) else {
                return;
            };
            if found == MAX_PREFIXES {
                return;
            }
            base = next;
        }
    }

    fn exactly(&self, text: &[u8]) -> Vec<Word> {
        let mut whole = Vec::new();
        self.prefixes(text, |length, words| {
            if length == text.len() {
                whole = words.to_vec();
            }
        });
        whole
    }
}

impl Dictionary {
    pub fn read(folder: &Path) -> Result<Self, String> {
        let named = |name: &str, e: String| format!("{} {e}", folder.join(name).display());
        let (matrix, _) = bytes_of(&folder.join("matrix.bin"), |_| u64::MAX).map_err(|e| named("matrix.bin", e))?;
        let (lefts, rights) = match matrix.len() {
            0..=3 => (0, 0),
            _ => (usize::from(half_at(&matrix, 0)), usize::from(half_at(&matrix, 2))),
        };
        // Words at both ends of a text have number 0.
        if lefts == 0 || rights == 0 || matrix.len() != 4 + 2 * lefts * rights {
            return Err(named("matrix.bin", format!("is no matrix of {lefts} x {rights} costs")));
        }
        let costs = matrix[4..]
            .chunks_exact(2)
            .map(|cost| half_at(cost, 0) as i16)
            .collect();
        drop(matrix);
        let words = |name: &str| Words::read(&folder.join(name), lefts, rights).map_err(|e| named(name, e));
        let (characters, names) = Self::characters(&folder.join("char.bin")).map_err(|e| named("char.bin", e))?;
        let by_name = words("unk.dic")?;
        let unknown: Vec<Vec<Word>> = names.iter().map(|name| by_name.exactly(name)).collect();
        if let Some(at) = unknown.iter().position(Vec::is_empty) {
            let name = String::from_utf8_lossy(&names[at]);
            return Err(named("unk.dic", format!("has no words of category \"{name}\"")));
        }
        if characters.iter().any(|row| Character::of(*row).category >= names.len()) {
            return Err(named("char.bin", "has a character of no category".into()));
        }
        Ok(Dictionary {
            known: words("sys.dic")?,
            unknown,
            characters,
            costs,
            lefts,
            max_group: Self::max_group(&folder.join("dicrc")),
        })
    }

    /// Returns the rows of all characters, and the names of categories.
    fn characters(path: &Path) -> Result<(Vec<u32>, Vec<Vec<u8>>), String> {
        let (bytes, _) = bytes_of(path, |_| u64::MAX)?;
        let count = if bytes.len() < 4 {
            0
        } else {
            word_at(&bytes, 0) as usize
        };
        let names = 32 * count;
        if count == 0 || count > 18 || bytes.len() != 4 + names + 4 * CHARACTERS {
            return Err(format!("has {count} categories in {} bytes", bytes.len()));
        }
        let name = |field: &[u8]| field.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        Ok((
            bytes[4 + names..].chunks_exact(4).map(|row| word_at(row, 0)).collect(),
            bytes[4..4 + names].chunks_exact(32).map(name).collect(),
        ))
    }

    fn max_group(path: &Path) -> usize {
        let settings = std::fs::read(path).unwrap_or_default();
        let set = String::from_utf8_lossy(&settings).lines().find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == "max-grouping-size").then(|| value.trim().parse().ok())?
        });
        set.filter(|size| *size != 0).unwrap_or(MAX_GROUP)
    }

    pub fn character(&self, c: char) -> Character {
        let row = self.characters.get(c as usize).unwrap_or(&self.characters[0]);
        Character::of(*row)
    }

    /// Calls `take` with the length in bytes and the words of each beginning of `text`, shortest first. A dictionary that
    /// was made for UTF-8 has no others; a damaged one may have empty words and parts of characters.
    pub fn prefixes<'a>(&'a self, text: &str, mut take: impl FnMut(usize, &'a [Word])) {
        self.known.prefixes(text.as_bytes(), |length, words| {
            if length > 0 && text.is_char_boundary(length) {
                take(length, words);
            }
        });
    }

    pub fn unknown(&self, of: Character) -> &[Word] {
        &self.unknown[of.category]
    }

    /// Returns the cost of a word with `left` behind one with `right`.
    pub fn cost(&self, right: u16, left: u16) -> i64 {
        i64::from(self.costs[usize::from(right) + self.lefts * usize::from(left)])
    }
}

impl Character {
    fn of(row: u32) -> Self {
        Character {
            kinds: row & 0x3_ffff,
            category: (row >> 18 & 0xff) as usize,
            length: (row >> 26 & 0xf) as usize,
            group: row >> 30 & 1 != 0,
            invoke: row >> 31 != 0,
        }
    }

    pub fn is_like(self, other: Character) -> bool {
        self.kinds & other.kinds != 0
    }
}
