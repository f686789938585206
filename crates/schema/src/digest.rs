//! A hash that never changes, for values that outlive the program: the journal keeps digests, and
//! hosts spread by one. The hasher of the standard library may change with each release of Rust, and
//! then every host of a fleet would see a change at once.

use std::net::IpAddr;

/// A digest in the making: 64-bit FNV-1a over the fields, each preceded by its length, with the
/// finalizer of MurmurHash3 (`fmix64`), so that similar texts differ in all bits. It does not
/// protect against values that somebody chose on purpose.
///
/// Sources: <http://www.isthe.com/chongo/tech/comp/fnv/>, and `fmix64` of MurmurHash3.
#[derive(Debug, Clone)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Adds bytes as one field.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.feed(&(bytes.len() as u64).to_le_bytes());
        self.feed(bytes);
        self
    }

    /// Adds text as one field.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    /// Adds a number as one field.
    pub fn number(&mut self, number: u64) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    /// Adds an address as one field.
    pub fn address(&mut self, address: &IpAddr) -> &mut Self {
        match address {
            IpAddr::V4(address) => self.bytes(&address.octets()),
            IpAddr::V6(address) => self.bytes(&address.octets()),
        }
    }

    /// Returns the digest of the fields so far.
    pub fn finish(&self) -> u64 {
        let mut hash = self.0;
        for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53_u64] {
            hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
        }
        hash ^ (hash >> 33)
    }

    fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &[&str]) -> u64 {
        let mut digest = Digest::default();
        for field in fields {
            digest.text(field);
        }
        digest.finish()
    }

    /// Journals hold such values: a change here makes every host of a fleet see a change.
    #[test]
    fn a_digest_is_the_same_for_ever() {
        let address = |text: &str| Digest::default().address(&text.parse().unwrap()).finish();
        let found = [
            of(&[]),
            of(&["web"]),
            of(&["web", "h1"]),
            Digest::default().number(7).finish(),
            address("10.0.0.1"),
            address("fd00::1"),
        ];
        // As computed by another program.
        let expected = [
            "efd01f60ba992926",
            "cadba47b5d7236a5",
            "306e4206f06c3c13",
            "2212b5982a9d27bd",
            "8de60932c6f2d47e",
            "8fc054b13ca5618f",
        ];
        assert_eq!(found.map(|digest| format!("{digest:016x}")), expected);
    }

    #[test]
    fn fields_do_not_run_into_each_other() {
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_ne!(of(&["a"]), of(&["a", ""]));
    }

    #[test]
    fn similar_names_are_far_apart() {
        let mut tenths = [0; 10];
        for number in 0..1000 {
            let place = of(&[&format!("web-{number:03}")]) as f64 / u64::MAX as f64;
            tenths[((place * 10.0) as usize).min(9)] += 1;
        }
        assert!(tenths.iter().all(|count| (60..=140).contains(count)), "{tenths:?}");
    }
}
