//! Finds libprotrain through pkg-config and tells cargo how to link it.
//!
//! PKG_CONFIG names another pkg-config. PKG_CONFIG_PATH names the folder of protrain.pc, if that is not one of the
//! system's. If PROTRAIN_STATIC is set, the library is linked statically.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for name in ["PKG_CONFIG", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR", "PKG_CONFIG_SYSROOT_DIR", "PROTRAIN_STATIC"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    let is_static = env::var_os("PROTRAIN_STATIC").is_some();
    for word in pkg_config(if is_static { &["--static", "--libs"] } else { &["--libs"] }).split_whitespace() {
        if let Some(folder) = word.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
        } else if let Some(library) = word.strip_prefix("-l") {
            let kind = if is_static && library == "protrain" { "static" } else { "dylib" };
            println!("cargo:rustc-link-lib={kind}={library}");
        }
    }
    println!("cargo:include={}", pkg_config(&["--variable=includedir"]));
    println!("cargo:libdir={}", pkg_config(&["--variable=libdir"]));
}

/// Asks pkg-config about libprotrain, of at least this crate's version, so that it has all functions declared here.
fn pkg_config(arguments: &[&str]) -> String {
    let tool = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
    let wanted = concat!("protrain >= ", env!("CARGO_PKG_VERSION"));
    match Command::new(&tool).args(arguments).arg(wanted).output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Ok(output) => give_up(&format!(
            "{}\nInstall libprotrain, or set PKG_CONFIG_PATH to the folder of its protrain.pc.",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => give_up(&format!("{tool}: {error}\nInstall pkg-config, or set PKG_CONFIG to its path.")),
    }
}

fn give_up(text: &str) -> ! {
    eprintln!("{text}");
    std::process::exit(1)
}
