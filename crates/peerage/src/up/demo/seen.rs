//! What was answered while a server was away.

use std::collections::BTreeMap;

use http::StatusCode;

use super::broken;
use crate::client::Answer;
use crate::exit::Failure;

/// Answers while a server is away, counted.
#[derive(Default)]
pub(super) struct Seen {
    answers: BTreeMap<(u16, Option<String>), usize>,
}

impl Seen {
    pub(super) fn add(&mut self, answer: &Answer) {
        let retry = answer.header("retry-after").map(str::to_owned);
        let key = (answer.status.as_u16(), retry);
        *self.answers.entry(key).or_default() += 1;
    }

    /// Only 503 with Retry-After is right when nobody else can answer.
    pub(super) fn add_away(&mut self, answer: &Answer) -> Result<(), Failure> {
        let retry = answer.header("retry-after");
        if answer.status == StatusCode::SERVICE_UNAVAILABLE && retry.is_some() {
            self.add(answer);
            return Ok(());
        }
        Err(broken(format!(
            "an API whose server is away has to answer 503 with Retry-After, not {} (Retry-After: {})",
            answer.in_words(),
            retry.unwrap_or("none")
        )))
    }

    pub(super) fn in_words(&self) -> String {
        if self.answers.is_empty() {
            return "no request failed".to_owned();
        }
        let words = self.answers.iter().map(|((status, retry), count)| {
            let retry = retry
                .as_ref()
                .map(|retry| format!(" with Retry-After: {retry}"));
            format!("{count} × {status}{}", retry.unwrap_or_default())
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn answer(status: u16, retry_after: Option<&str>) -> Answer {
        let mut headers = http::HeaderMap::new();
        if let Some(retry) = retry_after {
            headers.insert("retry-after", retry.parse().unwrap());
        }
        Answer {
            status: StatusCode::from_u16(status).unwrap(),
            headers,
            body: "404 page not found\n".into(),
        }
    }

    #[test]
    fn while_a_server_is_away_only_503_with_retry_after_is_right() {
        let mut seen = Seen::default();
        assert_eq!(seen.in_words(), "no request failed");
        for retry in ["1", "1", "5"] {
            seen.add_away(&answer(503, Some(retry))).unwrap();
        }
        assert_eq!(
            seen.in_words(),
            "2 × 503 with Retry-After: 1, 1 × 503 with Retry-After: 5"
        );
        let wrong = seen.add_away(&answer(404, None)).unwrap_err().to_string();
        assert!(wrong.contains("not 404 404 page not found"), "{wrong}");
        assert!(seen.add_away(&answer(503, None)).is_err());
        assert!(seen.add_away(&answer(200, Some("1"))).is_err());
    }
}
