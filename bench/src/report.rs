//! Writes what was found into a document: between two marks of it the aims and tables, beside it the plots.

use std::path::Path;

use anyhow::Context;

use crate::results::Results;
use crate::{aims, plot, tables};

const BEGIN: &str = "<!-- measured: begin -->\n";
const END: &str = "<!-- measured: end -->\n";

pub(crate) fn write(results: &Results, into: &Path) -> anyhow::Result<()> {
    let name = || into.display().to_string();
    let document = std::fs::read_to_string(into).with_context(name)?;
    let measured = format!(
        "{}\n## Aims\n\n{}\n{}",
        tables::machine(&results.machine),
        aims::table(results),
        tables::all(results)
    );
    let replaced = replaced(&document, &measured);
    let replaced = replaced.with_context(|| format!("{}: no {BEGIN}", name()))?;
    std::fs::write(into, replaced).with_context(name)?;
    for (suffix, svg) in plot::all(results) {
        let stem = into.file_stem().unwrap_or_default().to_string_lossy();
        let file = into.with_file_name(format!("{stem}-{suffix}.svg"));
        std::fs::write(&file, svg).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

fn replaced(document: &str, measured: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{measured}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let document = format!("a\n{BEGIN}old\n{END}b\n");
        let expected = format!("a\n{BEGIN}\nnew\n{END}b\n");
        assert_eq!(replaced(&document, "new"), Some(expected));
        assert_eq!(replaced("no marks", "new"), None);
    }
}
