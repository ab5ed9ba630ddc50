//! Base64 as Go's decoder reads it: the standard alphabet with padding, line breaks ignored, and errors that name
//! the byte at which reading stopped.

use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{DecodeError, Engine};

/// The text is no base64 from some byte on; the text of the error is Go's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("illegal base64 data at input byte {0}")]
pub struct Base64Error(pub usize);

const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// The same bytes as Go writes them.
pub(super) fn canonical(text: &str) -> Result<String, Base64Error> {
    let joined: String = text.split(['\r', '\n']).collect();
    let bytes = ENGINE.decode(&joined).map_err(|error| match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol { offset: at, .. } => {
            Base64Error(at)
        }
        _ => Base64Error(joined.len()),
    })?;
    Ok(ENGINE.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_one_way() {
        assert_eq!(canonical("YW\nJj"), Ok("YWJj".to_owned()));
        assert_eq!(canonical("YR=="), Ok("YQ==".to_owned()));
        assert_eq!(canonical(""), Ok(String::new()));
    }

    #[test]
    fn errors_name_the_byte() {
        assert_eq!(canonical("***"), Err(Base64Error(0)));
        assert_eq!(canonical("YW*j"), Err(Base64Error(2)));
        assert!(canonical("YQ").is_err());
    }
}
