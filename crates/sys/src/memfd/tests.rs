use super::seals::SEALS_NEEDED;
use super::*;
use crate::OsError;
use crate::forked::forked;
use crate::process::Exit;
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

fn again(mapping: &SharedMapping) -> OwnedFd {
    mapping.fd().try_clone_to_owned().unwrap()
}

#[test]
fn two_mappings_of_one_memory_share_their_content() {
    let mine = SharedMapping::create("upcall-test", 8192).unwrap();
    assert_eq!(mine.words().len(), 1024);
    assert!(mine.words().iter().all(|word| word.load(Relaxed) == 0));
    assert_eq!(mine.as_ptr().addr() % 4096, 0);
    let theirs = SharedMapping::from_fd(again(&mine), 8192).unwrap();
    assert_ne!(mine.as_ptr(), theirs.as_ptr());
    mine.words()[0].store(7, Relaxed);
    theirs.words()[1023].store(8, Relaxed);
    assert_eq!((theirs.words()[0].load(Relaxed), mine.words()[1023].load(Relaxed)), (7, 8));
    drop(mine);
    assert_eq!(theirs.words()[0].load(Relaxed), 7);
}

#[test]
fn a_smaller_or_larger_size_is_refused() {
    let mapping = SharedMapping::create("upcall-test", 4096).unwrap();
    for expected in [8, 4088, 4104, 8192] {
        assert_eq!(
            SharedMapping::from_fd(again(&mapping), expected).unwrap_err(),
            MapError::Size { found: 4096, expected }
        );
    }
}

#[test]
fn memory_without_size_seals_is_refused() {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    for seals in [
        SealFlags::empty(),
        SealFlags::SEAL,
        SealFlags::GROW | SealFlags::SEAL,
        SealFlags::SHRINK | SealFlags::SEAL,
    ] {
        let fd = rustix::fs::memfd_create("upcall-test", flags).unwrap();
        rustix::fs::ftruncate(&fd, 4096).unwrap();
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
        assert_eq!(SharedMapping::from_fd(fd, 4096).unwrap_err(), MapError::Unsealed, "{seals:?}");
    }
}

#[test]
fn a_file_that_is_no_memfd_is_refused() {
    let file = File::open("/proc/self/exe").unwrap();
    let bytes = usize::try_from(file.metadata().unwrap().len()).unwrap() / 8 * 8;
    assert_eq!(SharedMapping::from_fd(file.into(), bytes).unwrap_err(), MapError::Unsealed);
}

#[test]
fn the_kernel_refuses_to_map_write_sealed_memory() {
    let fd = rustix::fs::memfd_create("upcall-test", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, 4096).unwrap();
    rustix::fs::fcntl_add_seals(&fd, SEALS_NEEDED | SealFlags::WRITE).unwrap();
    let MapError::Os(error) = SharedMapping::from_fd(fd, 4096).unwrap_err() else { panic!() };
    assert_eq!(error, OsError::new("mmap", libc::EPERM));
}

#[test]
fn shared_memory_can_be_neither_shortened_nor_lengthened_nor_unsealed() {
    let mapping = SharedMapping::create("upcall-test", 4096).unwrap();
    for bytes in [0, 4095, 8192] {
        assert_eq!(rustix::fs::ftruncate(mapping.fd(), bytes), Err(Errno::PERM));
    }
    assert_eq!(rustix::fs::fcntl_add_seals(mapping.fd(), SealFlags::WRITE), Err(Errno::PERM));
}

#[test]
fn lengths_that_are_not_whole_words_are_refused() {
    for bytes in [0, 1, 4095, usize::MAX, usize::MAX - 7] {
        assert_eq!(
            SharedMapping::create("upcall-test", bytes).unwrap_err(),
            MapError::Length { found: bytes }
        );
    }
}

#[test]
fn unmapped_memory_is_gone_from_the_address_space() {
    let mapping = SharedMapping::create("upcall-gone", 4096).unwrap();
    let start = format!("{:x}-", mapping.as_ptr().addr());
    let maps = || std::fs::read_to_string("/proc/self/maps").unwrap();
    let is_there = |maps: &str| {
        maps.lines().any(|line| {
            line.trim_start_matches('0').starts_with(&start) && line.contains("upcall-gone")
        })
    };
    assert!(is_there(&maps()));
    drop(mapping);
    assert!(!is_there(&maps()));
}

/// Opens the file of `fd` again for writing, as any holder may try.
fn reopened_for_writing(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

fn os_error<T: fmt::Debug>(result: Result<T, MapError>) -> i32 {
    let MapError::Os(error) = result.unwrap_err() else { panic!() };
    error.raw_os_error()
}

#[test]
fn a_reader_sees_later_writes_of_the_owner() {
    let owner = SharedMapping::create_to_seal("upcall-test", 4096).unwrap();
    let reader = ReadOnlyMapping::from_fd(owner.read_only_fd().unwrap(), 4096).unwrap();
    assert_eq!((reader.len(), reader.words().len()), (4096, 512));
    owner.words()[511].store(9, Relaxed);
    assert_eq!(reader.words()[511].load(Relaxed), 9);
    // An exchange would fault, so no load may be one, whatever its ordering.
    assert_eq!(reader.words()[511].load(core::sync::atomic::Ordering::Acquire), 9);
    assert_eq!(reader.words()[511].load(core::sync::atomic::Ordering::SeqCst), 9);
    drop(owner);
    assert_eq!(reader.words()[511].load(Relaxed), 9);
}

#[test]
fn a_store_through_a_read_only_mapping_kills_the_process_and_changes_nothing() {
    let owner = SharedMapping::create_to_seal("upcall-test", 4096).unwrap();
    let reader = ReadOnlyMapping::from_fd(owner.read_only_fd().unwrap(), 4096).unwrap();
    // SAFETY: the child makes one store and nothing else.
    let child = unsafe {
        forked(|| {
            reader.words()[0].store(1, Relaxed);
            0
        })
    };
    assert_eq!(child.wait(), Exit::Signal(libc::SIGSEGV));
    assert_eq!(owner.words()[0].load(Relaxed), 0);
}

#[test]
fn a_descriptor_for_reading_gives_no_write_access_by_itself() {
    let owner = SharedMapping::create_to_seal("upcall-test", 4096).unwrap();
    let fd = owner.read_only_fd().unwrap();
    assert!(rustix::io::fcntl_getfd(&fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    assert_eq!(os_error(SharedMapping::from_fd(fd.try_clone().unwrap(), 4096)), libc::EACCES);
    assert_eq!(rustix::io::write(&fd, b"x"), Err(Errno::BADF));
    assert_eq!(rustix::fs::fcntl_add_seals(&fd, SealFlags::SEAL), Err(Errno::PERM));
    let reader = ReadOnlyMapping::from_fd(fd, 4096).unwrap();
    assert_eq!(make_writable(&reader), Err(Errno::ACCESS));
}

/// Tries to make a reader's page writable.
fn make_writable(reader: &ReadOnlyMapping) -> Result<(), Errno> {
    let start = reader.as_ptr().cast_mut().cast();
    let protection = rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE;
    // SAFETY: the whole mapping. More access to it breaks nothing.
    unsafe { rustix::mm::mprotect(start, reader.len(), protection) }
}

#[test]
fn without_the_seal_a_reader_could_open_the_file_again_and_write() {
    // This shows why the seal is needed. If the test fails, the kernel has become stricter.
    let owner = SharedMapping::create_to_seal("upcall-test", 4096).unwrap();
    let reader = ReadOnlyMapping::from_fd(owner.read_only_fd().unwrap(), 4096).unwrap();
    let fd = reopened_for_writing(reader.fd()).unwrap();
    SharedMapping::from_fd(fd, 4096).unwrap().words()[0].store(1, Relaxed);
    assert_eq!(owner.words()[0].load(Relaxed), 1);
}

#[test]
fn after_the_seal_only_the_owner_can_write() {
    let creator = SharedMapping::create_to_seal("upcall-test", 4096).unwrap();
    let owner = SharedMapping::from_fd(again(&creator), 4096).unwrap();
    creator.seal_future_writes().unwrap();
    creator.seal_future_writes().unwrap();
    owner.seal_future_writes().unwrap();
    let reader = ReadOnlyMapping::from_fd(creator.read_only_fd().unwrap(), 4096).unwrap();
    let reopened = reopened_for_writing(reader.fd()).unwrap();
    for fd in [again(&creator), again(&owner), reopened] {
        assert_eq!(rustix::io::write(&fd, b"x"), Err(Errno::PERM));
        let second = ReadOnlyMapping::from_fd(fd.try_clone().unwrap(), 4096).unwrap();
        assert_eq!(make_writable(&second), Err(Errno::ACCESS));
        assert_eq!(os_error(SharedMapping::from_fd(fd, 4096)), libc::EPERM);
    }
    owner.words()[0].store(5, Relaxed);
    creator.words()[1].store(6, Relaxed);
    assert_eq!([0, 1].map(|word: usize| reader.words()[word].load(Relaxed)), [5, 6]);
}

#[test]
#[ignore = "needs root, to become another user: run by cargo xtask ci where it is granted"]
fn the_seal_stops_another_user_and_the_file_mode_does_not() {
    const NOBODY: libc::uid_t = 65_534;
    for (is_sealed, expected) in [(false, 1), (true, 2)] {
        let owner = SharedMapping::create_to_seal("upcall-test", 4096).unwrap();
        let reader = ReadOnlyMapping::from_fd(owner.read_only_fd().unwrap(), 4096).unwrap();
        if is_sealed {
            owner.seal_future_writes().unwrap();
        }
        let path = format!("/proc/self/fd/{}\0", reader.fd().as_raw_fd());
        // SAFETY: system calls only. `path` ends in a zero, and mmap chooses the address.
        let child = unsafe {
            forked(|| {
                if libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) != 0 {
                    return 3;
                }
                let fd = libc::open(path.as_ptr().cast(), libc::O_RDWR);
                if fd < 0 {
                    return 4;
                }
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                let place = core::ptr::null_mut();
                let start = libc::mmap(place, 4096, protection, libc::MAP_SHARED, fd, 0);
                if start == libc::MAP_FAILED { 2 } else { 1 }
            })
        };
        assert_eq!(child.wait(), Exit::Code(expected), "sealed: {is_sealed}");
    }
}

#[test]
fn memory_with_closed_seals_cannot_be_sealed_against_writers() {
    let mapping = SharedMapping::create("upcall-test", 4096).unwrap();
    let error = mapping.seal_future_writes().unwrap_err();
    assert_eq!(error, OsError::new("fcntl(F_SEAL_FUTURE_WRITE)", libc::EPERM));
    // A hostile owner could do this between (2) and (3).
    let creator = SharedMapping::create_to_seal("upcall-test", 4096).unwrap();
    rustix::fs::fcntl_add_seals(creator.fd(), SealFlags::SEAL).unwrap();
    assert!(creator.seal_future_writes().unwrap_err().is_permission());
}

#[test]
fn a_reader_checks_the_file_as_a_writer_does() {
    let mapping = SharedMapping::create("upcall-test", 4096).unwrap();
    assert_eq!(
        ReadOnlyMapping::from_fd(again(&mapping), 8192).unwrap_err(),
        MapError::Size { found: 4096, expected: 8192 }
    );
    assert_eq!(
        ReadOnlyMapping::from_fd(again(&mapping), 4095).unwrap_err(),
        MapError::Length { found: 4095 }
    );
    let file = File::open("/proc/self/exe").unwrap();
    assert_eq!(ReadOnlyMapping::from_fd(file.into(), 8).unwrap_err(), MapError::Unsealed);
}

#[test]
fn only_pages_marked_dont_fork_are_missing_in_the_child() {
    for keeps in [true, false] {
        let mapping = SharedMapping::create("upcall-test", 4096).unwrap();
        if !keeps {
            mapping.dont_fork().unwrap();
        }
        // SAFETY: the child makes one store and nothing else, and does not drop the mapping.
        let child = unsafe {
            forked(|| {
                mapping.words()[0].store(1, Relaxed);
                0
            })
        };
        let expected = if keeps { Exit::Code(0) } else { Exit::Signal(libc::SIGSEGV) };
        assert_eq!(child.wait(), expected);
        assert_eq!(mapping.words()[0].load(Relaxed), u64::from(keeps));
    }
}

#[test]
fn locked_pages_are_counted_or_the_limit_refuses() {
    let mapping = SharedMapping::create("upcall-lock", 8192).unwrap();
    match mapping.lock() {
        Ok(()) => assert_eq!(locked_kib(mapping.as_ptr().addr()), Some(8)),
        Err(error) => {
            assert!(matches!(error.raw_os_error(), libc::ENOMEM | libc::EPERM), "{error}");
        }
    }
}

/// `Locked:` of the mapping that starts at `start` (proc_pid_smaps(5)).
fn locked_kib(start: usize) -> Option<u64> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&format!("{start:x}-")));
    let locked = lines.find(|line| line.starts_with("Locked:"))?;
    locked.split_whitespace().nth(1)?.parse().ok()
}

/// Gives a page of a mapping back to the system, for all holders.
fn remove_page(mapping: &SharedMapping) -> Result<(), Errno> {
    let start = mapping.as_ptr().cast_mut().cast();
    // SAFETY: the first page of the mapping. Its words become 0, as if another process stored that.
    unsafe { rustix::mm::madvise(start, 4096, rustix::mm::Advice::LinuxRemove) }
}

/// As [`remove_page`], for the page with the number `page`, by a descriptor.
fn punch(fd: BorrowedFd<'_>, page: u64) -> Result<(), Errno> {
    use rustix::fs::FallocateFlags;
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(fd, hole, 4096 * page, 4096)
}

#[test]
fn accepted_memory_cannot_be_punched() {
    const BYTES: usize = (1 << 19) + 768;
    let offered = OfferedMapping::create("upcall-test", BYTES).unwrap();
    let fd = offered.fd().try_clone_to_owned().unwrap();
    let taken = SharedMapping::from_fd(fd, BYTES).unwrap();
    // Until the seal it can be.
    taken.words()[0].store(1, Relaxed);
    assert_eq!((remove_page(&taken), punch(taken.fd(), 0)), (Ok(()), Ok(())));
    assert_eq!(taken.words()[0].load(Relaxed), 0);
    taken.populate().unwrap();
    taken.seal_future_writes().unwrap();
    let accepted = offered.accept().unwrap();
    taken.words().iter().for_each(|word| word.store(7, Relaxed));
    assert_eq!((remove_page(&taken), punch(taken.fd(), 0)), (Err(Errno::PERM), Err(Errno::PERM)));
    assert_eq!(punch(accepted.fd(), 0), Err(Errno::PERM));
    assert!(accepted.words().iter().all(|word| word.load(Relaxed) == 7));
    accepted.words()[BYTES / 8 - 1].store(8, Relaxed);
    assert_eq!(taken.words()[BYTES / 8 - 1].load(Relaxed), 8);
}

#[test]
fn offered_memory_is_accepted_only_with_the_seal_and_all_pages() {
    const BYTES: usize = 1 << 16;
    // The page that stays without memory. `None`: each page is made.
    let accept = |seals: bool, missing: Option<u64>| {
        let offered = OfferedMapping::create("upcall-test", BYTES).unwrap();
        let fd = offered.fd().try_clone_to_owned().unwrap();
        let taken = SharedMapping::from_fd(fd, BYTES).unwrap();
        taken.populate().unwrap();
        if let Some(page) = missing {
            punch(taken.fd(), page).unwrap();
        }
        if seals {
            taken.seal_future_writes().unwrap();
        }
        offered.accept().map(|accepted| accepted.len())
    };
    assert_eq!(accept(true, None), Ok(BYTES));
    assert_eq!(accept(false, None), Err(MapError::Untaken));
    for page in [0, 7, 15] {
        assert_eq!(accept(true, Some(page)), Err(MapError::PagesMissing), "page {page}");
    }
    // Nobody took it.
    let offered = OfferedMapping::create("upcall-test", BYTES).unwrap();
    assert_eq!(offered.accept().unwrap_err(), MapError::Untaken);
    // It was sealed by who has no memory of it.
    let offered = OfferedMapping::create("upcall-test", BYTES).unwrap();
    rustix::fs::fcntl_add_seals(offered.fd(), SealFlags::FUTURE_WRITE | SealFlags::SEAL).unwrap();
    assert_eq!(offered.accept().unwrap_err(), MapError::PagesMissing);
}
