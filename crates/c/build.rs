//! Sets how the shared library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // A thread of an engine that was freed in a callback may still run here when a program closes the library.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
        // This is the name under which installed programs find the library: see install.sh.
        let major = std::env::var("CARGO_PKG_VERSION_MAJOR").expect("cargo sets it");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtourbillon.so.{major}");
    }
}
