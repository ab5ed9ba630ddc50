//! Texts of others as they can be shown to people: whatever they say, they do nothing to a terminal.

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
}
