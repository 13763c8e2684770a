//! Links libsrpt.so anew when its list of symbols changes. The link arguments
//! themselves are those of `rdmacm`, see `link/swap-version-script.sh`.

fn main() {
    println!("cargo::rerun-if-changed=../link/libsrpt.map");
    println!("cargo::rerun-if-changed=../link/swap-version-script.sh");
}
