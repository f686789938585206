//! Reads the whole numbers of options. The words of the standard library speak of its types.

use schema::names::quoted;

/// Reads a whole number, 0 or more.
pub(crate) fn whole<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return Err(format!("{} is not a whole number, 0 or more", quoted(text)));
    }
    let number = text.parse::<u64>().ok().and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| "the number is too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_or_refused_in_plain_words() {
        assert_eq!(whole::<u32>("7"), Ok(7));
        assert_eq!(whole::<u32>("-1"), Err("\"-1\" is not a whole number, 0 or more".into()));
        assert_eq!(whole::<u32>(""), Err("\"\" is not a whole number, 0 or more".into()));
        assert_eq!(whole::<u32>("4294967296"), Err("the number is too large".into()));
        assert_eq!(whole::<usize>("99999999999999999999999"), Err("the number is too large".into()));
    }
}
