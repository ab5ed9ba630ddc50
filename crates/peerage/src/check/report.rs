//! What `peerage check` found: items with a verdict and a fix, and how they are shown.

use jiff::Timestamp;
use serde::Serialize;

use crate::output::{one_line, table};

/// How an item turned out, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// There was nothing to check, or not enough to check it with.
    Skip,
    /// It is as it should be.
    Pass,
    /// It works, but not as well as it could, or it could not be seen.
    Warn,
    /// It does not work.
    Fail,
}

impl Verdict {
    /// The word for it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One line of the checklist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Item {
    /// What was checked.
    pub(super) check: &'static str,
    /// The server, record or pair of servers that it is about; empty for all.
    pub(super) subject: String,
    /// How it turned out.
    pub(super) verdict: Verdict,
    /// What was seen.
    pub(super) says: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fix: Option<String>,
    /// Whether it is about something that could not be asked: what else there would be to say is not known.
    #[serde(skip)]
    pub(super) blind: bool,
    /// Whether what it says is numbers, which are no news beside the verdict.
    #[serde(skip)]
    pub(super) numbers: bool,
}

impl Item {
    fn new(check: &'static str, subject: &str, verdict: Verdict, says: impl Into<String>) -> Self {
        Self {
            check,
            subject: one_line(subject),
            verdict,
            // Much of it comes from servers: here is where all of it passes.
            says: one_line(&says.into()),
            fix: None,
            blind: false,
            numbers: false,
        }
    }

    /// The same, of something that could not be asked.
    pub(super) fn blind(mut self) -> Self {
        self.blind = true;
        self
    }

    /// The same, which says numbers.
    pub(super) fn of_numbers(mut self) -> Self {
        self.numbers = true;
        self
    }

    /// As it should be.
    pub(super) fn pass(check: &'static str, subject: &str, says: impl Into<String>) -> Self {
        Self::new(check, subject, Verdict::Pass, says)
    }

    /// Not checked.
    pub(super) fn skip(check: &'static str, subject: &str, says: impl Into<String>) -> Self {
        Self::new(check, subject, Verdict::Skip, says)
    }

    /// To be looked at.
    pub(super) fn warn(check: &'static str, subject: &str, says: impl Into<String>) -> Unmended {
        Unmended(Self::new(check, subject, Verdict::Warn, says))
    }

    /// Not working.
    pub(super) fn fail(check: &'static str, subject: &str, says: impl Into<String>) -> Unmended {
        Unmended(Self::new(check, subject, Verdict::Fail, says))
    }
}

/// Something that is wrong. It becomes an item with what to do about it, and not without.
#[must_use]
pub(super) struct Unmended(Item);

impl Unmended {
    /// With what to do about it.
    pub(super) fn fix(mut self, fix: impl Into<String>) -> Item {
        self.0.fix = Some(one_line(&fix.into()));
        self.0
    }
}

/// The whole checklist at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Report {
    /// When it was made.
    #[serde(serialize_with = "as_text")]
    pub(super) time: Timestamp,
    /// The worst verdict.
    pub(super) verdict: Verdict,
    /// The items, in the order of the checklist.
    pub(super) items: Vec<Item>,
}

fn as_text<S: serde::Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

impl Report {
    /// A report of these items.
    pub(super) fn new(time: Timestamp, items: Vec<Item>) -> Self {
        let worst = items.iter().map(|item| item.verdict).max();
        Self {
            time,
            verdict: worst.unwrap_or(Verdict::Skip),
            items,
        }
    }

    /// The exit code: 0 pass, 1 warn, 2 fail.
    pub(super) fn exit_code(&self) -> u8 {
        match self.verdict {
            Verdict::Skip | Verdict::Pass => 0,
            Verdict::Warn => 1,
            Verdict::Fail => 2,
        }
    }

    /// The report without what passes.
    pub(super) fn problems(&self) -> Self {
        let mut report = self.clone();
        report.items.retain(|it| it.verdict != Verdict::Pass);
        report
    }

    /// The report for people, in lines of about `width` characters; of what passes there may be just the number.
    pub(super) fn in_words(&self, width: usize, only_problems: bool) -> String {
        let check = self.items.iter().map(|it| it.check.len()).max();
        let before = "pass".len() + check.unwrap_or(0) + 6;
        let left = width.saturating_sub(before).max(40);
        let shown = |it: &&Item| !only_problems || it.verdict != Verdict::Pass;
        let rows = self.items.iter().filter(shown).map(|item| {
            let mut says = match item.subject.as_str() {
                "" => wrapped(&item.says, left),
                subject => wrapped(&format!("{subject}: {}", item.says), left),
            };
            if let Some(fix) = &item.fix {
                says.push('\n');
                says.push_str(&wrapped(&format!("fix: {fix}"), left));
            }
            let verdict = item.verdict.word().to_owned();
            vec![verdict, item.check.to_owned(), says]
        });
        let table = table(&["", "CHECK", ""], rows.collect());
        match only_problems && !self.items.iter().any(|it| shown(&it)) {
            true => self.summary(),
            false => format!("{table}\n\n{}", self.summary()),
        }
    }

    /// How many turned out how.
    pub(super) fn summary(&self) -> String {
        let count = |verdict| self.items.iter().filter(|it| it.verdict == verdict).count();
        format!(
            "{}: {} pass, {} warn, {} fail, {} skipped",
            self.verdict.word(),
            count(Verdict::Pass),
            count(Verdict::Warn),
            count(Verdict::Fail),
            count(Verdict::Skip)
        )
    }

    /// Whether something could not be asked, so that what is not said may be as it was.
    fn is_blind(&self) -> bool {
        self.items.iter().any(|it| it.blind)
    }

    /// What the next report is compared with: this one, and while it is blind also what an earlier one said of what is not
    /// in it.
    pub(super) fn remembering(&self, before: Option<&Report>) -> Report {
        let mut known = self.clone();
        let before = before.filter(|_| self.is_blind());
        let before = before.map_or(&[][..], |it| &it.items);
        let unsaid = before.iter().filter(|old| {
            let mut items = self.items.iter();
            !items.any(|it| (it.check, &it.subject) == (old.check, &old.subject))
        });
        known.items.extend(unsaid.cloned());
        known
    }

    /// What changed since an earlier report, one line each.
    pub(super) fn changes(&self, before: &Report) -> Vec<String> {
        // Several may be about the same, as authorities of one name: each is compared with one of its own.
        let mut before: Vec<&Item> = before.items.iter().collect();
        let about = |item: &Item| (item.check, item.subject.clone());
        let mut lines = Vec::new();
        for item in &self.items {
            let at = before.iter().position(|old| about(old) == about(item));
            let old = at.map(|at| before.remove(at));
            if old.is_some_and(|old| old.verdict == item.verdict && !differs(old, item)) {
                continue;
            }
            let from = old.map_or("new", |old| old.verdict.word());
            lines.push(format!("{from} -> {}", line(item)));
        }
        let gone = before.iter().filter(|_| !self.is_blind());
        lines.extend(gone.map(|old| format!("{} -> gone: {}", old.verdict.word(), title(old))));
        lines
    }
}

/// Whether an item that turned out the same says something else; numbers change all the time and are no news.
fn differs(old: &Item, new: &Item) -> bool {
    let words = |text: &str| text.replace(|c: char| c.is_ascii_digit() || c == '.', "");
    new.verdict > Verdict::Pass && !new.numbers && words(&old.says) != words(&new.says)
}

/// An item in one line.
pub(super) fn line(item: &Item) -> String {
    format!("{} {}: {}", item.verdict.word(), title(item), item.says)
}

fn title(item: &Item) -> String {
    match item.subject.as_str() {
        "" => item.check.to_owned(),
        subject => format!("{} of {subject}", item.check),
    }
}

/// A text in lines of at most `width` characters, broken at blanks.
fn wrapped(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// What to add where something of these servers is not known.
pub(super) fn not_known(names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| format!("not known: {}", names.join(", ")))
}

/// The first names, and how many more there are.
pub(super) fn some(names: &[String], most: usize) -> String {
    let shown = names.iter().take(most).cloned().collect::<Vec<_>>();
    match names.len().saturating_sub(most) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(items: Vec<Item>) -> Report {
        Report::new(Timestamp::UNIX_EPOCH, items)
    }

    #[test]
    fn the_exit_code_is_that_of_the_worst_item() {
        let (pass, warn) = (Item::pass("a", "", ""), Item::warn("b", "", "").fix(""));
        for (items, code) in [
            (vec![], 0),
            (vec![Item::skip("s", "", ""), pass.clone()], 0),
            (vec![warn.clone(), pass.clone()], 1),
            (vec![pass, Item::fail("c", "", "").fix(""), warn], 2),
        ] {
            assert_eq!(report(items.clone()).exit_code(), code, "{items:?}");
        }
    }

    #[test]
    fn lines_are_broken_at_blanks_and_a_fix_begins_one() {
        let item = Item::fail(
            "certificate",
            "old",
            "it ended yesterday at noon and nobody saw it coming",
        )
        .fix("renew it");
        let text = report(vec![item]).in_words(10, false);
        assert_eq!(
            text,
            "       CHECK\n\
             fail   certificate   old: it ended yesterday at noon and\n\
             \x20                    nobody saw it coming\n\
             \x20                    fix: renew it\n\n\
             fail: 0 pass, 0 warn, 1 fail, 0 skipped"
        );
    }

    #[test]
    fn what_changed_is_told_and_numbers_alone_are_no_change() {
        let before = report(vec![
            Item::pass("clock", "old", "0.1 s"),
            Item::warn("lease", "x", "not renewed for 20 s").fix(""),
            Item::pass("port", "y", "open"),
        ]);
        let after = report(vec![
            Item::pass("clock", "old", "0.2 s"),
            Item::warn("lease", "x", "not renewed for 31 s").fix(""),
            Item::fail("ready", "", "no answer").fix(""),
        ]);
        assert_eq!(
            after.changes(&before),
            ["new -> fail ready: no answer", "pass -> gone: port of y"]
        );
        assert!(after.changes(&after).is_empty());
    }

    #[test]
    fn what_could_not_be_asked_is_neither_gone_nor_new() {
        let lease = Item::pass("identity-lease", "cp1", "renewed 1 s ago");
        let counts = |says: &str| Item::warn("rerouted", "x", says).fix("").of_numbers();
        let first = report(vec![lease.clone(), counts("18 rerouted")]);
        let unread = Item::warn("identity-lease", "", "no answer")
            .fix("")
            .blind();
        let second = report(vec![unread, counts("3 rerouted, 1 proxy error")]);
        let new = "new -> warn identity-lease: no answer";
        assert_eq!(second.changes(&first), [new]);
        let known = second.remembering(Some(&first));
        let third = report(vec![lease, counts("2 rerouted")]);
        let mended = ["warn -> gone: identity-lease"];
        assert_eq!(third.changes(&known), mended);
        let known = third.remembering(Some(&known));
        assert_eq!(known, third);
        // What is missing although everything was asked is gone.
        let fourth = report(vec![counts("2 rerouted")]);
        let gone = ["pass -> gone: identity-lease of cp1"];
        assert_eq!(fourth.changes(&known), gone);
    }

    #[test]
    fn of_several_items_about_the_same_each_is_compared_with_itself() {
        let fine = Item::pass("authority", "kubernetes", "fine");
        let ended = Item::fail("authority", "kubernetes", "it ended").fix("renew it");
        let before = report(vec![fine, ended.clone()]);
        assert!(before.changes(&before).is_empty());
        let both = report(vec![ended.clone(), ended.clone()]);
        let line = "pass -> fail authority of kubernetes: it ended";
        assert_eq!(both.changes(&before), [line]);
        let one = report(vec![ended]);
        assert_eq!(
            one.changes(&both),
            ["fail -> gone: authority of kubernetes"]
        );
    }

    #[test]
    fn what_passes_can_be_left_out_with_all_its_lines() {
        let pass = Item::pass(
            "a",
            "x",
            "a long text that is broken into several lines of it",
        );
        let report = report(vec![pass.clone(), Item::skip("b", "", "nothing")]);
        assert_eq!(
            report.in_words(10, true),
            "       CHECK\nskip   b       nothing\n\npass: 1 pass, 0 warn, 0 fail, 1 skipped"
        );
        assert_eq!(report.problems().items.len(), 1);
        assert_eq!(report.problems().verdict, Verdict::Pass);
        let fine = self::report(vec![pass]).in_words(10, true);
        assert_eq!(fine, "pass: 1 pass, 0 warn, 0 fail, 0 skipped");
    }

    #[test]
    fn what_a_server_says_does_nothing_to_the_terminal() {
        let item = Item::warn("reachable", "a\u{202e}b", "v1.37.0\u{1b}]0;x\u{7}\nfail")
            .fix("kubectl delete lease \u{1b}[2J");
        for text in [line(&item), report(vec![item]).in_words(80, false)] {
            assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text}");
            assert!(text.contains("v1.37.0\\u{1b}]0;x\\u{7} fail"), "{text}");
        }
    }

    #[test]
    fn long_lists_are_cut() {
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(some(&names, 3), "a, b, c");
        assert_eq!(some(&names, 1), "a and 2 more");
    }
}
