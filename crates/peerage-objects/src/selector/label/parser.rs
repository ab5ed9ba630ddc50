//! The grammar of a label selector, as Kubernetes' `labels.Parser` reads it.

use super::{LabelSelectorError, Operator, Requirement, check_key};
use crate::field::FieldError;
use crate::selector::lexer::{Lexer, Token};

/// Where a token stands: `in` and `notin` are ordinary words except where an operator is wanted.
#[derive(Clone, Copy, PartialEq)]
enum Context {
    Values,
    Operator,
}

/// The requirements of a selector, in their order.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, LabelSelectorError> {
    Parser::new(text).requirements()
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    ahead: (Token, &'a str),
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Parser<'a> {
        let mut lexer = Lexer::new(text);
        let ahead = lexer.next_token();
        Parser { lexer, ahead }
    }

    fn look(&self, context: Context) -> (Token, &'a str) {
        let (token, text) = self.ahead;
        match token {
            Token::In | Token::NotIn if context == Context::Values => (Token::Identifier, text),
            _ => (token, text),
        }
    }

    fn take(&mut self, context: Context) -> (Token, &'a str) {
        let taken = self.look(context);
        self.ahead = self.lexer.next_token();
        taken
    }

    fn requirements(&mut self) -> Result<Vec<Requirement>, LabelSelectorError> {
        let syntax = |text: String| Err(LabelSelectorError::Syntax(text));
        let mut requirements = Vec::new();
        loop {
            match self.look(Context::Values) {
                (Token::Identifier | Token::DoesNotExist, _) => {
                    let requirement = self.requirement();
                    requirements.push(requirement.map_err(LabelSelectorError::Requirement)?);
                }
                (Token::End, _) => return Ok(requirements),
                (_, text) => {
                    return syntax(format!(
                        "found '{text}', expected: !, identifier, or 'end of string'"
                    ));
                }
            }
            match self.take(Context::Values) {
                (Token::End, _) => return Ok(requirements),
                (Token::Comma, _) => {
                    let (token, text) = self.look(Context::Values);
                    if !matches!(token, Token::Identifier | Token::DoesNotExist) {
                        return syntax(format!("found '{text}', expected: identifier after ','"));
                    }
                }
                (_, text) => {
                    return syntax(format!("found '{text}', expected: ',' or 'end of string'"));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (key, negated) = self.key()?;
        let done = matches!(self.look(Context::Values).0, Token::End | Token::Comma);
        let (operator, values) = if negated {
            (Operator::DoesNotExist, Vec::new())
        } else if done {
            (Operator::Exists, Vec::new())
        } else {
            let operator = self.operator()?;
            let values = match operator {
                Operator::In | Operator::NotIn => self.values()?,
                _ => vec![self.exact_value()?],
            };
            (operator, values)
        };
        Requirement::new(key, operator, values).map_err(|errors| join(&errors))
    }

    fn key(&mut self) -> Result<(&'a str, bool), String> {
        let (mut token, mut text) = self.take(Context::Values);
        let negated = token == Token::DoesNotExist;
        if negated {
            (token, text) = self.take(Context::Values);
        }
        if token != Token::Identifier {
            return Err(format!("found '{text}', expected: identifier"));
        }
        let mut errors = Vec::new();
        // Kubernetes passes no path here, and Go prints a missing one this way.
        check_key(text, "<nil>", &mut errors);
        match errors.pop() {
            Some(error) => Err(error.line()),
            None => Ok((text, negated)),
        }
    }

    fn operator(&mut self) -> Result<Operator, String> {
        let (token, text) = self.take(Context::Operator);
        Ok(match token {
            Token::In => Operator::In,
            Token::NotIn => Operator::NotIn,
            Token::Equals => Operator::Equals,
            Token::DoubleEquals => Operator::DoubleEquals,
            Token::NotEquals => Operator::NotEquals,
            Token::GreaterThan => Operator::GreaterThan,
            Token::LessThan => Operator::LessThan,
            _ => {
                return Err(format!(
                    "found '{text}', expected: in, notin, =, ==, !=, gt, lt"
                ));
            }
        })
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        let (token, text) = self.take(Context::Values);
        if token != Token::OpenPar {
            return Err(format!("found '{text}' expected: '('"));
        }
        let values = match self.look(Context::Values) {
            (Token::Identifier | Token::Comma, _) => self.value_list()?,
            (Token::ClosedPar, _) => vec![String::new()],
            (_, text) => return Err(format!("found '{text}', expected: ',', ')' or identifier")),
        };
        match self.take(Context::Values) {
            (Token::ClosedPar, _) => Ok(values),
            (_, text) => Err(format!("found '{text}', expected: ')'")),
        }
    }

    /// Words between commas; nothing before or after a comma stands for the empty value.
    fn value_list(&mut self) -> Result<Vec<String>, String> {
        let mut values: Vec<String> = Vec::new();
        loop {
            match self.take(Context::Values) {
                (Token::Identifier, text) => {
                    values.push(text.to_owned());
                    match self.look(Context::Values) {
                        (Token::Comma, _) => {}
                        (Token::ClosedPar, _) => return Ok(values),
                        (_, text) => return Err(format!("found '{text}', expected: ',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    if values.is_empty() {
                        values.push(String::new());
                    }
                    match self.look(Context::Values).0 {
                        Token::ClosedPar => {
                            values.push(String::new());
                            return Ok(values);
                        }
                        Token::Comma => {
                            self.take(Context::Values);
                            values.push(String::new());
                        }
                        _ => {}
                    }
                }
                (_, text) => return Err(format!("found '{text}', expected: ',', or identifier")),
            }
        }
    }

    fn exact_value(&mut self) -> Result<String, String> {
        if matches!(self.look(Context::Values).0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.take(Context::Values) {
            (Token::Identifier, text) => Ok(text.to_owned()),
            (_, text) => Err(format!("found '{text}', expected: identifier")),
        }
    }
}

/// One error as it is, several as Go's aggregate prints them.
fn join(errors: &[FieldError]) -> String {
    let texts: Vec<String> = errors.iter().map(FieldError::line).collect();
    match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}
