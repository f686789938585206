//! What is made of the rows of the table.

/// Makes [`super::Key`], and for each row a type with the arguments and with the type of the value.
macro_rules! keys {
    ($(
        $(#[$doc:meta])*
        $name:ident $(($($arg:ident: $type:ident $(as $spelled:ident)?),+))?
            = $start:literal $($part:ident $($text:literal)?)*
        {
            value: $form:ty,
            lifetime: $lifetime:literal,
            owner: $owner:ident,
            agents_read: $agents_read:ident,
            agents_write: $agents_write:ident,
        }
    )+) => {
        /// One key of the store.
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Key {
            $($(#[$doc])* $name $(($($type),+))?,)+
        }

        impl std::fmt::Display for Key {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$name $(($($arg),+))? => {
                        $($(let $arg = macros::spelled!($arg $(as $spelled)?);)+)?
                        f.write_str($start)?;
                        $(path::Part::write($part, f)?; $(f.write_str($text)?;)?)*
                    })+
                }
                Ok(())
            }
        }

        impl Key {
            /// Parses a key of the store.
            ///
            /// # Errors
            /// Returns an error if the path is unknown or a name in it is invalid. Readers ignore such keys
            /// and count them; they never become part of an answer.
            pub fn parse(text: &str) -> Result<Self, KeyError> {
                let mut parser = path::Parser::new(text);
                $(if let Some(key) = parser.row($start, $name::parse) {
                    return Ok(key);
                })+
                Err(parser.error())
            }

            /// Returns the host to which the key belongs; `None` for a key of the whole fleet. All keys of
            /// a host are deleted when it is decommissioned.
            #[allow(unused_variables)]
            pub fn host(&self) -> Option<&HostName> {
                match self {
                    $(Self::$name $(($($arg),+))? => macros::owner!($owner),)+
                }
            }

            /// Returns what the table says about the key.
            pub fn row(&self) -> Row {
                match self {
                    $(Self::$name { .. } => $name::ROW,)+
                }
            }

            /// Returns the keys that exist at most once. All other keys are in the ranges of [`Prefix::WHOLE`].
            pub fn singles() -> Vec<Self> {
                [$(macros::single!($name $(($($type),+))?)),+].into_iter().flatten().collect()
            }

            /// Returns the keys of a host in which nothing but the host's name varies. The others are found
            /// in the ranges of [`Prefix::before_host`].
            pub fn of_host(host: &HostName) -> Vec<Self> {
                let with_host = [$(macros::with_host!(host, $name $(($($type),+))?)),+];
                with_host.into_iter().flatten().filter(|key| key.host().is_some()).collect()
            }

            /// Reads a value of this key, and returns it as this program writes it.
            ///
            /// # Errors
            /// Returns why the value cannot be read.
            pub fn rewrite(&self, value: &[u8]) -> Result<String, form::FormError> {
                match self {
                    $(Self::$name { .. } => form::rewrite::<$form>(value),)+
                }
            }
        }

        /// Returns every kind of key, as `docs/keys.md` describes it.
        #[allow(unused_variables)]
        pub fn documented() -> Vec<DocumentedKey> {
            let mut all = Vec::new();
            $({
                $($(let $arg: Option<macros::spelled_type!($type $(as $spelled)?)> = None;)+)?
                let shown = path::Placeholders::new($start)$(.part(&$part)$(.text($text))?)*;
                all.extend(shown.paths().into_iter().map(|path| DocumentedKey { path, row: $name::ROW }));
            })+
            all
        }

        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Eq)]
            pub struct $name $(($(#[doc = concat!("The ", stringify!($arg), ".")] pub $type),+))?;

            impl $name {
                /// Reads a value of the store.
                ///
                /// # Errors
                /// Returns an error if the bytes are no value of this key.
                pub fn read(bytes: &[u8]) -> Result<<$form as Form>::Value, <$form as Form>::Error> {
                    <$form as Form>::read(bytes)
                }

                #[allow(unused_mut)]
                fn parse(mut rest: path::PathReader<'_>) -> Result<Key, path::Mismatch> {
                    $(let $part = rest.part()?; $(rest.text($text)?;)?)*
                    rest.end()?;
                    Ok(Key::$name $(($(macros::plain!($arg: $type $(as $spelled)?)),+))?)
                }
            }

            impl TypedKey for $name {
                type Value = <$form as Form>::Value;
                type Error = <$form as Form>::Error;
                const ROW: Row = Row {
                    name: stringify!($name),
                    start: $start,
                    arguments: &[$($(stringify!($arg)),+)?],
                    value: <$form as Form>::WORDS,
                    lifetime: $lifetime,
                    owner: stringify!($owner),
                    agents_read: Agents::$agents_read,
                    agents_write: Agents::$agents_write,
                };

                fn path(self) -> String {
                    Key::from(self).to_string()
                }

                fn read(bytes: &[u8]) -> Result<Self::Value, Self::Error> {
                    Self::read(bytes)
                }
            }

            impl From<$name> for Key {
                fn from(key: $name) -> Self {
                    let $name $(($($arg),+))? = key;
                    Self::$name $(($($arg),+))?
                }
            }
        )+
    };
}

/// An argument as it is spelled in the path.
macro_rules! spelled {
    ($arg:ident) => {
        $arg
    };
    ($arg:ident as $spelled:ident) => {
        &part::$spelled::from(*$arg)
    };
}

/// The type of an argument in the path.
macro_rules! spelled_type {
    ($type:ident) => {
        $type
    };
    ($type:ident as $spelled:ident) => {
        part::$spelled
    };
}

/// An argument of the path as it is in the key.
macro_rules! plain {
    ($arg:ident: $type:ident) => {
        $arg
    };
    ($arg:ident: $type:ident as $spelled:ident) => {
        <$type as From<part::$spelled>>::from($arg)
    };
}

/// The host to which a key belongs.
macro_rules! owner {
    (fleet) => {
        None
    };
    ($host:ident) => {
        Some($host)
    };
}

/// The key, if it has no argument.
macro_rules! single {
    ($name:ident) => {
        Some(Key::$name)
    };
    ($name:ident ($($type:ident),+)) => {
        None
    };
}

/// The key, if the name of a host is its only argument.
macro_rules! with_host {
    ($host:ident, $name:ident (HostName)) => {
        Some(Key::$name($host.clone()))
    };
    ($host:ident, $name:ident $(($($type:ident),+))?) => {
        None
    };
}

/// Makes [`super::Prefix`] of the rows of the table of ranges.
macro_rules! ranges {
    (
        whole {$(
            $(#[$whole_doc:meta])* $whole:ident = $whole_start:literal;
        )+}
        parts {$(
            $(#[$doc:meta])* $name:ident $(($($arg:ident: $type:ident),+))?
                = $start:literal $($part:ident $($text:literal)?)*;
        )+}
    ) => {
        /// A range of keys that is read or watched together. A range that ends with a slash does not contain the keys
        /// of a longer name that begins with the same letters.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Prefix {
            $($(#[$whole_doc])* $whole,)+
            $($(#[$doc])* $name $(($($type),+))?,)+
        }

        impl Prefix {
            /// The ranges that together hold every key but [`Key::singles`].
            pub const WHOLE: &[Self] = &[$(Self::$whole),+];
        }

        impl std::fmt::Display for Prefix {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$whole => f.write_str($whole_start)?,)+
                    $(Self::$name $(($($arg),+))? => {
                        f.write_str($start)?;
                        $(path::Part::write($part, f)?; $(f.write_str($text)?;)?)*
                    })+
                }
                Ok(())
            }
        }
    };
}

pub(super) use {keys, owner, plain, ranges, single, spelled, spelled_type, with_host};
