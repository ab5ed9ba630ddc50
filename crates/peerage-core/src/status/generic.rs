//! Messages that follow from the HTTP code alone: those of the router, and those that clients make up for answers
//! that are no Status.

use super::Status;
use crate::quote::quote;

impl Status {
    /// What a server's router answers, and what clients make of an answer that is no Status: the message
    /// follows from the code, in some cases with the text that the server gave.
    #[must_use]
    pub fn generic(code: u16, server_message: &str) -> Self {
        let (reason, message) = match code {
            400 => (
                "BadRequest",
                "the server rejected our request for an unknown reason",
            ),
            401 => (
                "Unauthorized",
                "the server has asked for the client to provide credentials",
            ),
            403 => ("Forbidden", server_message),
            404 => (
                "NotFound",
                "the server could not find the requested resource",
            ),
            405 => (
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            ),
            406 if server_message.is_empty() => (
                "NotAcceptable",
                "the server was unable to respond with a content type that the client supports",
            ),
            406 => ("NotAcceptable", server_message),
            409 => ("Conflict", "the server reported a conflict"),
            415 => ("UnsupportedMediaType", server_message),
            422 => (
                "Invalid",
                "the server rejected our request due to an error in our request",
            ),
            429 => (
                "TooManyRequests",
                "the server has received too many requests and has asked us to try again later",
            ),
            503 => (
                "ServiceUnavailable",
                "the server is currently unable to handle the request",
            ),
            504 => (
                "Timeout",
                "the server was unable to return a response in the time allotted, but may still be processing the request",
            ),
            _ => return Self::generic_other(code, server_message),
        };
        Self::failure(code, reason, message).with_empty_details()
    }

    fn generic_other(code: u16, server_message: &str) -> Self {
        let status = if code >= 500 {
            let quoted = quote(server_message);
            let message = format!(
                "an error on the server ({quoted}) has prevented the request from succeeding"
            );
            Self::failure(code, "InternalError", message)
        } else {
            let message = format!(
                "the server responded with the status code {code} but did not return more information"
            );
            Self::failure(code, "", message)
        };
        status.with_empty_details()
    }
}
