//! Lets the library find librdmacm.so.1 where it is installed: in the folder
//! above its own.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-rpath,$ORIGIN/..");
    // The wrappers must not lose their code to dlclose.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
