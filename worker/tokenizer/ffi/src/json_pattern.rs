// SPDX-License-Identifier: Apache-2.0
//! Regular expressions of JSON Schema, which are those of ECMA-262, in the syntax of llguidance, which is Rust's.
use std::iter::Peekable;
use std::str::Chars;

/// The characters of `\s`; Rust's has U+0085 and lacks U+FEFF.
const SPACE: &str = r"\t-\r\x20\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff";
/// What `.` does not match.
const LINE_ENDS: &str = r"\n\r\u2028\u2029";
const ANY: &str = r"(?s:.)";
/// Excluded from every negated class: llguidance takes a class that has all control characters for one that has every
/// escape of JSON, and would let `\"` through for `[^"]`. Generated texts have no U+0000.
const NUL: &str = r"\x00";

/// Translates one pattern.
struct Translation<'a> {
    rest: Peekable<Chars<'a>>,
    made: String,
    /// Whether `.` matches ends of lines too, for each group that is open and for the whole.
    dot_all: Vec<bool>,
}

/// Returns a pattern as llguidance has to read it. Refuses what ECMA-262 does not have or reads differently, so that
/// one reading is left.
pub fn translate(pattern: &str) -> Result<String, String> {
    let mut translation = Translation {
        rest: pattern.chars().peekable(),
        made: String::with_capacity(pattern.len()),
        dot_all: vec![false],
    };
    match translation.run() {
        Ok(()) => Ok(translation.made),
        Err(reason) => Err(format!("the pattern {pattern:?} {reason}")),
    }
}

/// One part of a class: a character, as it is written there, or a set of them.
enum ClassPart {
    Character(String),
    Set(String),
}

impl Translation<'_> {
    fn run(&mut self) -> Result<(), String> {
        let mut quantified = false;
        while let Some(c) = self.rest.next() {
            if quantified && c == '+' {
                return Err("has a quantifier behind another".into());
            }
            quantified = matches!(c, '*' | '+' | '?' | '}');
            match c {
                '\\' => {
                    let escaped = self.escape()?;
                    self.made.push_str(&escaped);
                }
                '[' => self.class()?,
                '.' if self.dot_all.last() == Some(&true) => self.made.push_str(ANY),
                '.' => self.made.push_str(&format!("[^{LINE_ENDS}{NUL}]")),
                '(' => self.group()?,
                ')' if self.dot_all.len() == 1 => return Err("closes a group that is not open".into()),
                ')' => {
                    self.dot_all.pop();
                    self.made.push(c);
                }
                '{' if self.rest.peek() == Some(&',') => return Err("has a quantifier without a least number".into()),
                _ => self.made.push(c),
            }
        }
        Ok(())
    }

    /// Reads the beginning of a group, or flags for the rest of one. Other flags could change what the rest means.
    fn group(&mut self) -> Result<(), String> {
        self.made.push('(');
        let mut dot_all = self.dot_all.last() == Some(&true);
        if self.rest.next_if_eq(&'?').is_some() {
            self.made.push('?');
            if !matches!(self.rest.peek(), Some(':' | '<' | 'P' | '=' | '!')) {
                while let Some(flag) = self.rest.next_if(|c| matches!(c, 'i' | 's')) {
                    dot_all |= flag == 's';
                    self.made.push(flag);
                }
                match self.rest.next() {
                    Some(':') => self.made.push(':'),
                    Some(')') => {
                        self.made.push(')');
                        self.dot_all.pop();
                    }
                    _ => return Err("sets flags other than i and s".into()),
                }
            }
        }
        self.dot_all.push(dot_all);
        Ok(())
    }

    /// Reads an escape outside of classes.
    fn escape(&mut self) -> Result<String, String> {
        match self.rest.peek().copied() {
            Some('s') => self.instead(format!("[{SPACE}]")),
            Some('S') => self.instead(format!("[^{SPACE}{NUL}]")),
            Some(c @ ('d' | 'D' | 'w' | 'W' | 'b' | 'B')) => self.instead(format!("\\{c}")),
            _ => self.character(),
        }
    }

    fn instead(&mut self, made: String) -> Result<String, String> {
        self.rest.next();
        Ok(made)
    }

    /// Reads an escape that stands for one character, or for those of a property.
    fn character(&mut self) -> Result<String, String> {
        let Some(c) = self.rest.next() else {
            return Err("ends in a backslash".into());
        };
        let braced = self.rest.peek() == Some(&'{');
        match c {
            't' | 'n' | 'r' | 'f' | 'v' | 'u' => Ok(format!("\\{c}")),
            'x' if !braced => Ok("\\x".into()),
            'p' | 'P' if braced => {
                let mut made = format!("\\{c}");
                for next in self.rest.by_ref() {
                    made.push(next);
                    if next == '}' {
                        break;
                    }
                }
                Ok(made)
            }
            _ if c.is_ascii_alphanumeric() => Err(format!("has \\{c}, which is not supported")),
            _ => Ok(literal(c)),
        }
    }

    fn class(&mut self) -> Result<(), String> {
        let negated = self.rest.next_if_eq(&'^').is_some();
        if self.rest.next_if_eq(&']').is_some() {
            if !negated {
                return Err("has a class without characters; write \\] for the bracket".into());
            }
            self.made.push_str(ANY);
            return Ok(());
        }
        self.made.push_str(if negated { "[^" } else { "[" });
        if negated {
            self.made.push_str(NUL);
        }
        while self.rest.next_if_eq(&']').is_none() {
            let first = self.class_part()?;
            let mut after = self.rest.clone();
            let range = after.next() == Some('-') && after.next().is_some_and(|c| c != ']');
            match first {
                ClassPart::Set(set) => self.made.push_str(&set),
                ClassPart::Character(from) if !range => self.made.push_str(&from),
                ClassPart::Character(from) => {
                    self.rest.next();
                    let ClassPart::Character(to) = self.class_part()? else {
                        return Err("has a range that ends in a set".into());
                    };
                    self.made.push_str(&format!("{from}-{to}"));
                }
            }
        }
        self.made.push(']');
        Ok(())
    }

    fn class_part(&mut self) -> Result<ClassPart, String> {
        let Some(c) = self.rest.next() else {
            return Err("has a class without an end".into());
        };
        if c != '\\' {
            return Ok(ClassPart::Character(literal(c)));
        }
        match self.rest.peek().copied() {
            Some('b') => self.instead(r"\x08".into()).map(ClassPart::Character),
            Some('s') => self.instead(SPACE.into()).map(ClassPart::Set),
            Some('S') => self.instead(format!("[^{SPACE}{NUL}]")).map(ClassPart::Set),
            Some(c @ ('d' | 'D' | 'w' | 'W')) => self.instead(format!("\\{c}")).map(ClassPart::Set),
            Some('p' | 'P') => self.character().map(ClassPart::Set),
            Some('x' | 'u') => self.code().map(ClassPart::Character),
            _ => self.character().map(ClassPart::Character),
        }
    }

    /// Reads `x41`, `u0041` or `u{41}`, whose end a range has to know.
    fn code(&mut self) -> Result<String, String> {
        let mut made = self.character()?;
        if self.rest.peek() == Some(&'{') {
            for next in self.rest.by_ref() {
                made.push(next);
                if next == '}' {
                    break;
                }
            }
            return Ok(made);
        }
        for _ in 0..if made == "\\x" { 2 } else { 4 } {
            made.extend(self.rest.next_if(char::is_ascii_hexdigit));
        }
        Ok(made)
    }
}

/// Writes a character that stands for itself, in a class too, where Rust gives `[`, `&&`, `--` and `~~` a meaning.
fn literal(c: char) -> String {
    match c {
        '<' | '>' => format!("\\x{:02x}", c as u32), // Rust's \< and \> are the ends of words
        _ if c.is_ascii_punctuation() => format!("\\{c}"),
        _ => c.to_string(),
    }
}
