//! Decides which files may be executed: each part of the path must be owned by root or by this
//! process's own user and must not be writable by anybody else. A sticky directory such as /tmp is
//! accepted, because only the owner of a file can replace it there.

use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The search path for programs, independent of the environment of this process.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Most links on the way to a file, as in the kernel.
const LINKS_MAX: u32 = 40;

/// Why a file is not executed or read: a part of its path that is not trusted, or another reason.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct NotTrusted(#[from] Reason);

impl NotTrusted {
    /// True if the machine could not answer, for example because too many files are open. That says nothing about who can
    /// write the file.
    pub fn is_of_machine(&self) -> bool {
        matches!(&self.0, Reason::Unreadable { error, .. } if is_of_machine(error))
    }
}

/// True if an error says that the machine lacks something or fails, and nothing about a file.
pub fn is_of_machine(error: &io::Error) -> bool {
    let errors =
        [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::IO, Errno::INTR, Errno::AGAIN, Errno::STALE];
    Errno::from_io_error(error).is_some_and(|error| errors.contains(&error))
}

#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error("{program} is not on {places}")]
    NotFound { program: String, places: String },
    #[error("{} is not an absolute path", .0.display())]
    NotAbsolute(PathBuf),
    #[error("{}", missing(.path, .part))]
    Missing { path: PathBuf, part: PathBuf },
    #[error("{}: {error}", .path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{} belongs to user {user}, not to root or to the user of this program", .path.display())]
    Owner { path: PathBuf, user: u32 },
    #[error("{} is writable by others (mode {mode:o})", .path.display())]
    Writable { path: PathBuf, mode: u32 },
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    #[error("{} is not executable", .0.display())]
    NotExecutable(PathBuf),
}

impl Reason {
    fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |error| Self::Unreadable { path, error }
    }

    /// Returns the error for a part of a path that cannot be looked at. It names the whole path too:
    /// the part alone could be a directory of which nobody knows what should be in it.
    fn of_part(path: &Path, part: &Path, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing { path: path.to_owned(), part: part.to_owned() },
            _ => Self::Unreadable { path: part.to_owned(), error },
        }
    }
}

fn missing(path: &Path, part: &Path) -> String {
    if path == part {
        format!("{} does not exist", path.display())
    } else {
        format!("{} does not exist: there is no {}", path.display(), part.display())
    }
}

/// Finds a program by its path, or by its name on [`PATH`], and checks it.
///
/// # Errors
/// Returns an error if the program is not found, and the errors of [`check_command`].
pub fn find_command(program: &str) -> Result<PathBuf, NotTrusted> {
    find_on(PATH, program)
}

fn find_on(places: &str, program: &str) -> Result<PathBuf, NotTrusted> {
    let path = if program.contains('/') {
        PathBuf::from(program)
    } else {
        let mut found = places.split(':').map(|place| Path::new(place).join(program));
        let not_found = || Reason::NotFound { program: program.to_owned(), places: places.to_owned() };
        found.find(|path| path.is_file()).ok_or_else(not_found)?
    };
    check_command(&path)?;
    Ok(path)
}

/// Checks that a command is an executable file that only root or this process's user could provide.
///
/// # Errors
/// Returns the first part of the path that is not trusted, and why.
pub fn check_command(path: &Path) -> Result<(), NotTrusted> {
    let real = check_real(path)?;
    let metadata = std::fs::metadata(&real).map_err(Reason::unreadable(&real))?;
    if !metadata.is_file() {
        return Err(Reason::NotAFile(real).into());
    }
    if metadata.mode() & 0o111 == 0 {
        return Err(Reason::NotExecutable(real).into());
    }
    Ok(())
}

/// Checks that only root or this process's user could provide a file. It need not be executable. Returns the path of the
/// file without links: a link is as good as each path that it leads through.
///
/// # Errors
/// Returns the first part of the path that is not trusted, and why.
pub fn check_file(path: &Path) -> Result<PathBuf, NotTrusted> {
    Ok(check_real(path)?)
}

/// Checks each part of a path, and of the paths to which its links lead. Returns the path without links.
fn check_real(path: &Path) -> Result<PathBuf, Reason> {
    if !path.is_absolute() {
        return Err(Reason::NotAbsolute(path.to_owned()));
    }
    let parts_of = |path: &Path| path.iter().map(OsStr::to_owned).collect::<Vec<OsString>>();
    let mut rest: VecDeque<OsString> = parts_of(path).into();
    let (mut real, mut links) = (PathBuf::new(), 0);
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            real.pop();
            continue;
        }
        // The root replaces what is before it.
        let part = real.join(&name);
        let metadata =
            std::fs::symlink_metadata(&part).map_err(|error| Reason::of_part(path, &part, error))?;
        check_part(&part, &metadata)?;
        if !metadata.is_symlink() {
            real = part;
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(Reason::Unreadable { path: path.to_owned(), error: Errno::LOOP.into() });
        }
        let target = std::fs::read_link(&part).map_err(Reason::unreadable(&part))?;
        parts_of(&target).into_iter().rev().for_each(|part| rest.push_front(part));
    }
    Ok(real)
}

fn check_part(part: &Path, metadata: &Metadata) -> Result<(), Reason> {
    let me = rustix::process::geteuid().as_raw();
    if metadata.uid() != 0 && metadata.uid() != me {
        return Err(Reason::Owner { path: part.to_owned(), user: metadata.uid() });
    }
    // The mode of a symbolic link has no meaning.
    if metadata.is_symlink() {
        return Ok(());
    }
    let mode = metadata.mode();
    let sticky_directory = metadata.is_dir() && mode & 0o1000 != 0;
    let my_group = rustix::process::getegid().as_raw();
    let group_writes = mode & 0o020 != 0 && metadata.gid() != 0 && metadata.gid() != my_group;
    if (mode & 0o002 != 0 || group_writes) && !sticky_directory {
        return Err(Reason::Writable { path: part.to_owned(), mode: mode & 0o7777 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_error_of_the_machine_is_no_statement_about_trust() {
        let error = |raw: i32| {
            NotTrusted(Reason::of_part(Path::new("/a/b"), Path::new("/a"), io::Error::from_raw_os_error(raw)))
        };
        // EMFILE, ENFILE, ENOMEM, EIO; EACCES, ENOENT, ELOOP.
        for raw in [24, 23, 12, 5] {
            assert!(error(raw).is_of_machine(), "{raw}");
        }
        for raw in [13, 2, 40] {
            assert!(!error(raw).is_of_machine(), "{raw}");
        }
    }

    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_what_nobody_else_can_change_is_executed() {
        let base = tempfile::tempdir().unwrap();
        let directory = base.path().join("steps");
        std::fs::create_dir(&directory).unwrap();
        let file = directory.join("apply");
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        let set = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let check = |directory_mode, file_mode, expected: Option<&str>| {
            set(&directory, directory_mode);
            set(&file, file_mode);
            match (check_command(&file), expected) {
                (Ok(()), None) => {}
                (Err(error), Some(part)) => assert!(error.to_string().contains(part), "{error}"),
                (other, expected) => {
                    panic!("{directory_mode:o} {file_mode:o}: {other:?}, expected {expected:?}")
                }
            }
        };
        check(0o755, 0o755, None);
        check(0o1777, 0o755, None);
        check(0o777, 0o755, Some("steps is writable by others"));
        check(0o755, 0o757, Some("apply is writable by others"));
        check(0o755, 0o644, Some("is not executable"));
        set(&directory, 0o755);
        assert!(check_command(&directory).unwrap_err().to_string().contains("not a regular file"));
        let missing = |path: &Path| check_command(path).unwrap_err().to_string();
        let none = directory.join("none");
        assert_eq!(missing(&none), format!("{} does not exist", none.display()));
        let below = none.join("apply");
        let expected = format!("{} does not exist: there is no {}", below.display(), none.display());
        assert_eq!(missing(&below), expected);
        assert!(check_command(Path::new("apply")).unwrap_err().to_string().contains("not an absolute path"));
    }

    #[test]
    fn a_name_is_looked_for_where_programs_are_and_checked_there() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        for name in ["one", "two", "open"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        let put = |path: &str, mode| {
            std::fs::write(at(path), "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(at(path), Permissions::from_mode(mode)).unwrap();
        };
        put("two/fine", 0o755);
        put("open/bad", 0o757);
        std::fs::create_dir(at("one/fine")).unwrap();
        let places = ["one", "two", "open"].map(|name| at(name).display().to_string()).join(":");
        let fine = at("two/fine");
        for (program, expected) in [
            ("fine", Ok(fine.clone())),
            (fine.to_str().unwrap(), Ok(fine.clone())),
            ("bad", Err("bad is writable by others".to_owned())),
            ("none", Err(format!("none is not on {places}"))),
            ("./fine", Err("./fine is not an absolute path".to_owned())),
        ] {
            match (find_on(&places, program), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(error), Err(expected)) => assert!(error.to_string().contains(&expected), "{error}"),
                other => panic!("{program}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_link_is_followed_and_its_goal_checked() {
        let base = tempfile::tempdir().unwrap();
        let open = base.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::write(open.join("x"), "").unwrap();
        std::fs::set_permissions(open.join("x"), Permissions::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        let link = base.path().join("link");
        std::os::unix::fs::symlink(open.join("x"), &link).unwrap();
        assert!(check_command(&link).unwrap_err().to_string().contains("open is writable by others"));
        // A link in the middle of the way counts too, although it leads to a good file.
        let good = base.path().join("good");
        std::fs::write(&good, "").unwrap();
        std::os::unix::fs::symlink("../good", open.join("middle")).unwrap();
        let first = base.path().join("first");
        std::os::unix::fs::symlink("open/middle", &first).unwrap();
        assert!(check_file(&first).unwrap_err().to_string().contains("open is writable by others"));
        // As in a ConfigMap: each file is a link into a directory that is a link.
        let real = base.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("..v1")).unwrap();
        std::fs::write(real.join("..v1/web.json"), "").unwrap();
        std::os::unix::fs::symlink("..v1", real.join("..data")).unwrap();
        std::os::unix::fs::symlink("..data/web.json", real.join("web.json")).unwrap();
        assert_eq!(check_file(&real.join("web.json")).unwrap(), real.join("..v1/web.json"));
        std::os::unix::fs::symlink("circle", real.join("circle")).unwrap();
        assert!(check_file(&real.join("circle")).unwrap_err().to_string().contains("ymbolic links"));
        assert!(check_file(&real.join("web.json/x")).is_err());
    }
}
