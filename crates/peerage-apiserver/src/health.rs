//! `/livez`, `/readyz` and `/healthz`: named checks, one by one or all together.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use peerage_core::{PlainError, Query};
use peerage_http::Response;
use tracing::info;

use crate::respond::text;

/// One thing that has to hold. Starts out false.
#[derive(Debug, Default)]
pub(crate) struct Check(AtomicBool);

impl Check {
    pub(crate) fn set(&self, good: bool) {
        self.0.store(good, Ordering::Release);
    }

    fn is_good(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The checks of one server.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// The store has answered and is being followed.
    pub(crate) store: Check,
    /// The first list of the store is in the cache.
    pub(crate) cache: Check,
    /// Roles, namespaces and everything else of a fresh cluster are there.
    pub(crate) bootstrap: Check,
    /// The peers known at the start have been heard once, or waited for long enough.
    pub(crate) peers: Check,
    /// The server has been told to stop.
    stopping: AtomicBool,
    last_failed: Mutex<Vec<&'static str>>,
}

/// Which of the three pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Page {
    Healthz,
    Livez,
    Readyz,
}

impl Page {
    fn name(self) -> &'static str {
        match self {
            Self::Healthz => "healthz",
            Self::Livez => "livez",
            Self::Readyz => "readyz",
        }
    }
}

impl Health {
    /// Turns `/readyz` red.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// The paths at which the checks answer one by one.
    pub(crate) fn paths(&self) -> impl Iterator<Item = String> {
        [Page::Healthz, Page::Livez, Page::Readyz]
            .into_iter()
            .flat_map(|page| {
                let checks = self.checks(page).into_iter();
                checks.map(move |(check, _)| format!("/{}/{check}", page.name()))
            })
    }

    fn checks(&self, page: Page) -> Vec<(&'static str, bool)> {
        let mut checks = vec![
            ("ping", true),
            ("etcd", self.store.is_good()),
            (
                "poststarthook/rbac/bootstrap-roles",
                self.bootstrap.is_good(),
            ),
            (
                "poststarthook/mixed-version-proxy-handler",
                self.peers.is_good(),
            ),
        ];
        if page == Page::Readyz {
            checks.insert(2, ("etcd-readiness", self.store.is_good()));
            checks.push(("informer-sync", self.cache.is_good()));
            checks.push(("shutdown", !self.stopping.load(Ordering::Acquire)));
        }
        checks
    }

    /// Answers `/page` or `/page/check`.
    pub(crate) fn answer(&self, page: Page, check: Option<&str>, query: &Query<'_>) -> Response {
        let checks = self.checks(page);
        if let Some(name) = check {
            return match checks.iter().find(|(n, _)| *n == name) {
                Some((_, true)) => text(StatusCode::OK, "ok"),
                Some((name, false)) => {
                    self.note(&[(name, false)]);
                    text(
                        StatusCode::INTERNAL_SERVER_ERROR,
                        "internal server error: reason withheld\n",
                    )
                }
                None => peerage_http::plain(&PlainError::page_not_found()),
            };
        }
        let excluded: Vec<&str> = query.all("exclude").collect();
        let counted: Vec<_> = checks
            .into_iter()
            .map(|(n, good)| (n, good, excluded.contains(&n)))
            .collect();
        let failed: Vec<_> = counted
            .iter()
            .filter(|(_, good, out)| !good && !out)
            .map(|(n, ..)| (*n, false))
            .collect();
        if failed.is_empty() && !query.contains("verbose") {
            self.recovered();
            return text(StatusCode::OK, "ok");
        }
        let mut body = String::new();
        for (name, good, out) in &counted {
            body += &match (good, out) {
                (_, true) => format!("[+]{name} excluded: ok\n"),
                (true, _) => format!("[+]{name} ok\n"),
                (false, _) => format!("[-]{name} failed: reason withheld\n"),
            };
        }
        if failed.is_empty() {
            return text(
                StatusCode::OK,
                format!("{body}{} check passed\n", page.name()),
            );
        }
        self.note(&failed);
        text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("{body}{} check failed\n", page.name()),
        )
    }

    /// Logs what fails, once until it is something else.
    fn note(&self, failed: &[(&'static str, bool)]) {
        let names: Vec<_> = failed.iter().map(|(n, _)| *n).collect();
        let mut last = self
            .last_failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *last != names {
            info!(checks = names.join(", "), "health checks fail");
            *last = names;
        }
    }

    fn recovered(&self) {
        self.last_failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn every_path_that_is_listed_is_answered() {
        let health = Health::default();
        let mut seen = 0;
        for path in health.paths() {
            let (page, check) = [Page::Healthz, Page::Livez, Page::Readyz]
                .into_iter()
                .find_map(|page| Some((page, path.strip_prefix(&format!("/{}/", page.name()))?)))
                .expect("a page's path");
            let status = health.answer(page, Some(check), &Query::parse("")).status();
            assert_ne!(status, StatusCode::NOT_FOUND, "{path}");
            assert_eq!(
                status == StatusCode::OK,
                check == "ping" || check == "shutdown",
                "{path}"
            );
            seen += 1;
        }
        assert_eq!(seen, 4 + 4 + 7);
    }
}
