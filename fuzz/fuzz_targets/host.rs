#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| upcall_fuzz_bodies::host(data));
