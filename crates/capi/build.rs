//! Gives the shared library its name for the loader.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Raised when a program that was linked before could no longer run.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libupcall_c.so.0");
}
