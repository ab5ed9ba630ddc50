//! Texts as they can be shown to people: those of others, which do nothing to a terminal whatever they say, and numbers
//! with what they count.

use std::fmt;

/// A text as it can be shown to people: what would move a terminal's cursor, rename its window or turn the direction of
/// writing is written as an escape, whoever sent it. Line ends stay.
pub fn plain(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' => String::from('\n'),
        c if is_active(c) => c.escape_unicode().to_string(),
        c => String::from(c),
    };
    text.chars().map(shown).collect()
}

/// The same in one line, so that nobody writes lines of his own.
pub fn one_line(text: &str) -> String {
    plain(&text.replace(['\n', '\r', '\t'], " "))
}

/// A number with what it counts, the noun as it is of one: `1 server`, `2 servers`, `0 addresses`.
pub fn counted(number: impl fmt::Display, noun: &str) -> String {
    let number = number.to_string();
    if number == "1" {
        return format!("{number} {noun}");
    }
    let hisses = ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end));
    match noun.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{number} {stem}ies"),
        _ if hisses => format!("{number} {noun}es"),
        _ => format!("{number} {noun}s"),
    }
}

/// Control characters, and marks that are not seen but change how the rest is.
fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_moves_the_cursor_or_begins_a_line() {
        assert_eq!(plain("a\n\u{1b}[2J"), "a\n\\u{1b}[2J");
        assert_eq!(one_line("a\r\n\tb\u{202e}"), "a   b\\u{202e}");
    }

    #[test]
    fn one_is_one_and_everything_else_is_several() {
        for (number, noun, shown) in [
            (0.0, "server", "0 servers"),
            (1.0, "server", "1 server"),
            (12.0, "failed fetch", "12 failed fetches"),
            (2.0, "address", "2 addresses"),
            (2.0, "entry", "2 entries"),
            (2.0, "day", "2 days"),
            (2.0, "API", "2 APIs"),
        ] {
            assert_eq!(counted(number, noun), shown);
        }
        assert_eq!(counted(1_usize, "minor version"), "1 minor version");
    }
}
