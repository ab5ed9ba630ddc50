//! Cuts a label selector into tokens, as Kubernetes' `labels.Lexer` does.

/// What a token is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token {
    ClosedPar,
    Comma,
    DoesNotExist,
    DoubleEquals,
    Equals,
    GreaterThan,
    Identifier,
    In,
    LessThan,
    NotEquals,
    NotIn,
    OpenPar,
    End,
    /// Symbols that make no token.
    Error,
}

/// The tokens of a selector with their text.
pub(super) struct Lexer<'a> {
    rest: &'a str,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { rest: text }
    }

    /// The next token; [`Token::End`] for ever once there is none.
    pub(super) fn next_token(&mut self) -> (Token, &'a str) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        match self.rest.chars().next() {
            None => (Token::End, ""),
            Some(c) if is_symbol(c) => self.symbol(),
            Some(_) => self.word(),
        }
    }

    /// The longest run of symbols that is a token.
    fn symbol(&mut self) -> (Token, &'a str) {
        for length in [2, 1] {
            if let Some(text) = self.rest.get(..length)
                && let Some(token) = symbol_token(text)
            {
                self.rest = &self.rest[length..];
                return (token, text);
            }
        }
        let (text, rest) = self.rest.split_at(1);
        self.rest = rest;
        (Token::Error, text)
    }

    fn word(&mut self) -> (Token, &'a str) {
        let ends = |c: char| is_symbol(c) || matches!(c, ' ' | '\t' | '\r' | '\n');
        let end = self.rest.find(ends).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        let token = match word {
            "in" => Token::In,
            "notin" => Token::NotIn,
            _ => Token::Identifier,
        };
        (token, word)
    }
}

fn is_symbol(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn symbol_token(text: &str) -> Option<Token> {
    Some(match text {
        ")" => Token::ClosedPar,
        "," => Token::Comma,
        "!" => Token::DoesNotExist,
        "==" => Token::DoubleEquals,
        "=" => Token::Equals,
        ">" => Token::GreaterThan,
        "<" => Token::LessThan,
        "!=" => Token::NotEquals,
        "(" => Token::OpenPar,
        _ => return None,
    })
}
