//! Random values from the kernel.

/// Returns a random number in 0..=1 for jitter, or 0.5 if the random source fails.
pub fn jitter() -> f64 {
    getrandom::u32().map_or(0.5, |n| f64::from(n) / f64::from(u32::MAX))
}

/// Returns a random token of 32 hexadecimal digits.
pub fn random_token() -> schema::names::Token {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).unwrap_or_else(|e| panic!("no randomness from the kernel: {e}"));
    let text: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    schema::names::Token::new(text).unwrap_or_else(|e| unreachable!("hexadecimal digits are a name: {e}"))
}
