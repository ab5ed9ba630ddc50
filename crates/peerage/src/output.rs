//! What commands print: JSON for programs, tables in kubectl's manner for people.

pub use peerage_core::shown::{counted, one_line, plain};
use serde::Serialize;

use crate::exit::Failure;

/// Prints a line to standard output. A reader who has gone away, as `head` does, is no reason to stop.
#[macro_export]
macro_rules! say {
    ($($part:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($part)*);
    }};
}

/// How to print a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// Prints a value as indented JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Failure::failed(format!("cannot write JSON: {e}")))?;
    say!("{text}");
    Ok(())
}

/// Prints a value as JSON in one line, as readers of several documents like it.
pub fn print_line(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value)
        .map_err(|e| Failure::failed(format!("cannot write JSON: {e}")))?;
    say!("{text}");
    Ok(())
}

/// A table without lines, as wide as its content; a cell may have several lines.
pub fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let header = header.iter().map(|title| (*title).to_owned()).collect();
    let rows = std::iter::once(header).chain(rows);
    let rows: Vec<Vec<String>> = rows
        .map(|row: Vec<String>| row.iter().map(|cell| plain(cell)).collect())
        .collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells
            .flat_map(|cell| cell.lines())
            .map(|line| line.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in &rows {
        let height = row
            .iter()
            .map(|cell| cell.lines().count())
            .max()
            .unwrap_or(0);
        for line in 0..height {
            let cells = row.iter().zip(&widths).map(|(cell, width)| {
                let cell = cell.lines().nth(line).unwrap_or_default();
                format!("{cell:<width$}   ")
            });
            text.push_str(cells.collect::<String>().trim_end());
            text.push('\n');
        }
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_instead() {
        let text = "v1.37.0\u{1b}]0;pwned\u{7}\u{202e}x\u{9b}2J é\ny";
        let shown = "v1.37.0\\u{1b}]0;pwned\\u{7}\\u{202e}x\\u{9b}2J é";
        assert_eq!(plain(text), format!("{shown}\ny"));
        assert_eq!(one_line(text), format!("{shown} y"));
        let cells = table(&[""], vec![vec![text.to_owned()]]);
        assert!(!cells.contains(['\u{1b}', '\u{202e}']), "{cells}");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_line() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let text = table(&["A", "LONG"], vec![row(["xyz", "1\n22"]), row(["", "3"])]);
        assert_eq!(text, "A     LONG\nxyz   1\n      22\n      3");
    }
}
