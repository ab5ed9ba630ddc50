//! Which field of a type has which number.

use std::collections::HashMap;
use std::sync::Arc;

/// Messages by the name of their type in OpenAPI.
#[derive(Clone, Debug, Default)]
pub struct Messages(HashMap<Box<str>, Message>);

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: `{word}` is neither NUMBER=FIELD nor NUMBER<TYPE")]
pub struct MessagesError {
    /// Which line, from 1.
    pub line: usize,
    /// What stands there.
    pub word: String,
}

/// The fields of one message, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<(u32, Field)>);

/// One field.
#[derive(Clone, Debug)]
pub(super) enum Field {
    /// A field of the object.
    Named {
        /// Its name in JSON.
        name: Arc<str>,
        /// Whether absence and the zero value are two things.
        nilable: bool,
        /// Whether it is written even when it is empty.
        always: bool,
    },
    /// The fields of this type are the object's own.
    Inline(Box<str>),
}

impl Messages {
    /// Reads lines of `TYPE N=field N=field* N=field! N<TYPE`; `#` begins a comment line.
    pub fn parse(text: &str) -> Result<Messages, MessagesError> {
        let mut messages = HashMap::new();
        for (at, line) in text
            .lines()
            .enumerate()
            .filter(|(_, l)| !l.starts_with('#'))
        {
            let mut words = line.split_ascii_whitespace();
            let Some(name) = words.next() else { continue };
            let fields = words.map(|word| {
                Field::parse(word).ok_or_else(|| MessagesError {
                    line: at + 1,
                    word: word.to_owned(),
                })
            });
            let mut fields = fields.collect::<Result<Vec<_>, _>>()?;
            fields.sort_by_key(|(number, _)| *number);
            messages.insert(name.into(), Message(fields));
        }
        Ok(Messages(messages))
    }

    pub(super) fn get(&self, name: &str) -> Option<&Message> {
        self.0.get(name)
    }

    /// The names of a type's fields in JSON, those of inlined types included.
    pub fn fields<'m>(&'m self, name: &str) -> Box<dyn Iterator<Item = &'m str> + 'm> {
        let fields = self.0.get(name).map_or(&[][..], |m| &m.0);
        Box::new(fields.iter().flat_map(|(_, field)| match field {
            Field::Named { name, .. } => Box::new(std::iter::once(&**name)),
            Field::Inline(inner) => self.fields(inner),
        }))
    }
}

impl Message {
    pub(super) fn field(&self, number: u32) -> Option<&Field> {
        let at = self.0.binary_search_by_key(&number, |(n, _)| *n).ok()?;
        Some(&self.0[at].1)
    }
}

impl Field {
    fn parse(word: &str) -> Option<(u32, Field)> {
        if let Some((number, name)) = word.split_once('<') {
            return Some((number.parse().ok()?, Field::Inline(name.into())));
        }
        let (number, name) = word.split_once('=')?;
        let always = name.ends_with('!');
        let name = name.trim_end_matches('!');
        let nilable = name.ends_with('*');
        let name = name.trim_end_matches('*').into();
        Some((
            number.parse().ok()?,
            Field::Named {
                name,
                nilable,
                always,
            },
        ))
    }
}
