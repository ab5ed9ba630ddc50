//! Reading strings in HPACK's Huffman code (RFC 7541, 5.2 and appendix B).
//!
//! The code is canonical: codes of one length follow each other in the order of their symbols, and longer ones follow
//! shorter. So the lengths say all.

/// Symbols: the octets and the end of the string.
const SYMBOLS: usize = 257;

/// Bits of each symbol's code (RFC 7541, appendix B).
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// Bits of the longest code.
const LONGEST: usize = 30;

/// The codes in their order.
struct Codes {
    /// How many have so many bits.
    count: [u16; LONGEST + 1],
    /// The symbols, by length and then by number.
    symbols: [u16; SYMBOLS],
}

static CODES: Codes = codes();

const fn codes() -> Codes {
    let mut codes = Codes {
        count: [0; LONGEST + 1],
        symbols: [0; SYMBOLS],
    };
    let mut next = 0;
    let mut length = 1;
    while length <= LONGEST {
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                codes.count[length] += 1;
                codes.symbols[next] = symbol as u16;
                next += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    codes
}

/// The string was not encoded by the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotHuffman;

/// Hands over each octet of an encoded string.
pub(super) fn decode(encoded: &[u8], mut each: impl FnMut(u8)) -> Result<(), NotHuffman> {
    let (mut code, mut first, mut index, mut length) = (0u32, 0u32, 0u32, 0usize);
    let mut is_padding = true;
    for byte in encoded {
        for shift in (0..8).rev() {
            let bit = (byte >> shift) & 1;
            code = code << 1 | u32::from(bit);
            first <<= 1;
            length += 1;
            is_padding &= bit == 1;
            if length > LONGEST {
                return Err(NotHuffman);
            }
            let count = u32::from(CODES.count[length]);
            if code - first < count {
                let symbol = CODES.symbols[(index + code - first) as usize];
                each(u8::try_from(symbol).map_err(|_| NotHuffman)?);
                (code, first, index, length) = (0, 0, 0, 0);
                is_padding = true;
                continue;
            }
            first += count;
            index += count;
        }
    }
    match length < 8 && is_padding {
        true => Ok(()),
        false => Err(NotHuffman),
    }
}

/// The other way.
#[cfg(test)]
pub(super) fn encode(text: &[u8]) -> Vec<u8> {
    let code_of = |symbol: usize| {
        let length = usize::from(LENGTHS[symbol]);
        let (mut code, mut index) = (0u64, 0usize);
        for shorter in 1..length {
            code = (code + u64::from(CODES.count[shorter])) << 1;
            index += usize::from(CODES.count[shorter]);
        }
        let place = CODES.symbols[index..]
            .iter()
            .position(|it| usize::from(*it) == symbol);
        (code + place.map_or(0, |place| place as u64), length)
    };
    let (mut bits, mut held, mut encoded) = (0u64, 0usize, Vec::new());
    for octet in text {
        let (code, length) = code_of(usize::from(*octet));
        bits = bits << length | code;
        held += length;
        while held >= 8 {
            held -= 8;
            encoded.push((bits >> held) as u8);
        }
    }
    if held > 0 {
        encoded.push((bits << (8 - held)) as u8 | (0xff >> held));
    }
    encoded
}
