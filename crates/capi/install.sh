#!/bin/sh
# Installs header, libraries and pkg-config file of Upcall's C API.
#
#     cargo build --release -p upcall-capi
#     crates/capi/install.sh PREFIX [BUILD]
#
# PREFIX is absolute; BUILD is where cargo left the libraries, target/release of this
# repository unless given. DESTDIR is put before PREFIX, for packagers.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
prefix=${1:?"usage: install.sh PREFIX [BUILD]"}
build=${2:-"$here/../../target/release"}
case $prefix in
/*) ;;
*) echo "install.sh: PREFIX is \`$prefix\`, expected an absolute path" >&2 && exit 2 ;;
esac

version=$(sed -n 's/^#define RTS_VERSION "\(.*\)"$/\1/p' "$here/include/upcall.h")
root=${DESTDIR:-}$prefix
install -d "$root/include" "$root/lib/pkgconfig"
install -m 644 "$here/include/upcall.h" "$root/include/upcall.h"
install -m 644 "$build/libupcall_c.a" "$root/lib/libupcall_c.a"
install -m 755 "$build/libupcall_c.so" "$root/lib/libupcall_c.so.$version"
# The loader's name stands in the library (build.rs), the linker's has no number.
ln -sf "libupcall_c.so.$version" "$root/lib/libupcall_c.so.0"
ln -sf libupcall_c.so.0 "$root/lib/libupcall_c.so"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$here/upcall.pc.in" \
    >"$root/lib/pkgconfig/upcall.pc"
