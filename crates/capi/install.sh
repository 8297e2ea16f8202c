#!/bin/sh
# Installs header, libraries and pkg-config file of Upcall's C API; see `usage` below.
#
# The script first copies all files into a folder inside PREFIX. Then it renames them into
# place, one after the other. If a step fails, it restores the earlier files.
set -eu

usage() {
    cat <<'EOF'
Installs header, libraries and pkg-config file of Upcall's C API, all files or none.

Usage: install.sh PREFIX [BUILD]

  PREFIX  an absolute path, such as /usr/local or "$HOME/.local"
  BUILD   the folder with libupcall_c.a and libupcall_c.so; unless given, `release` in
          cargo's target directory (CARGO_TARGET_DIR, build.target-dir, or target/ of
          this repository)

Environment: DESTDIR is put before PREFIX, for packagers.

Example:
  cargo build --release -p upcall-capi && crates/capi/install.sh "$HOME/.local"
EOF
}

fail() {
    echo "install.sh: $1" >&2
    exit "${2:-1}"
}

case ${1-} in
-h | --help) usage && exit 0 ;;
esac
[ $# -ge 1 ] && [ $# -le 2 ] || fail "expected PREFIX and perhaps BUILD; --help says more" 2
prefix=$1
case $prefix in
/*) ;;
*) fail "PREFIX is \`$prefix\`, expected an absolute path" 2 ;;
esac
# With CDPATH `cd` may go elsewhere, and says where.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

# Where cargo left the libraries, asked from the caller's folder: relative paths in
# CARGO_TARGET_DIR and which configuration files hold depend on it.
target_directory() {
    found=$(cargo metadata --format-version 1 --no-deps --manifest-path "$here/Cargo.toml" |
        sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
    [ -n "$found" ] && printf '%s\n' "$found"
}
if [ $# -eq 2 ]; then
    build=$2
else
    target=$(target_directory) || fail "cargo does not tell its target directory; give BUILD"
    build=$target/release
fi

for source in "$here/include/upcall.h" "$here/upcall.pc.in" \
    "$build/libupcall_c.a" "$build/libupcall_c.so"; do
    [ -f "$source" ] ||
        fail "$source is not there; \`cargo build --release -p upcall-capi\` makes the libraries"
done
version=$(sed -n 's/^#define RTS_VERSION "\(.*\)"$/\1/p' "$here/include/upcall.h")
[ -n "$version" ] || fail "found no RTS_VERSION in $here/include/upcall.h"
files="include/upcall.h lib/libupcall_c.a lib/libupcall_c.so.$version lib/libupcall_c.so.0
    lib/libupcall_c.so lib/pkgconfig/upcall.pc"

root=${DESTDIR:-}$prefix
case $root in
-*) root=./$root ;; # so that the commands below do not take it for an option
esac
for file in $files; do
    if [ -d "$root/$file" ] && [ ! -L "$root/$file" ]; then
        fail "$root/$file is a folder, expected a file or nothing"
    fi
done

# State to undo if a step fails: created folders, the deepest first, and placed files.
made= placed= stage= whole=no
undo() {
    status=$?
    trap - EXIT
    # A second signal must not interrupt the undoing.
    trap '' HUP INT TERM
    if [ $whole = no ]; then
        for file in $placed; do
            if [ -e "$stage/old/$file" ] || [ -L "$stage/old/$file" ]; then
                mv -fT "$stage/old/$file" "$root/$file"
            else
                rm -f "$root/$file"
            fi
        done
    fi
    [ -z "$stage" ] || rm -rf "$stage"
    if [ $whole = no ]; then
        printf '%s' "$made" | while IFS= read -r folder; do
            rmdir "$folder"
        done
        echo "install.sh: nothing was installed" >&2
    fi
    exit $status
}
trap undo EXIT
trap 'exit 130' HUP INT TERM

make_folder() {
    if [ ! -d "$1" ]; then
        make_folder "$(dirname "$1")"
        mkdir "$1"
        made="$1
$made"
    fi
}

make_folder "$root/include"
make_folder "$root/lib/pkgconfig"
# The folder is in the same file system as the target, so that a rename is atomic.
stage=$(mktemp -d "$root/.upcall-install.XXXXXX")
for side in new old; do
    mkdir -p "$stage/$side/include" "$stage/$side/lib/pkgconfig"
done
install -m 644 "$here/include/upcall.h" "$stage/new/include/upcall.h"
install -m 644 "$build/libupcall_c.a" "$stage/new/lib/libupcall_c.a"
install -m 755 "$build/libupcall_c.so" "$stage/new/lib/libupcall_c.so.$version"
# The library holds its name for the loader (build.rs). The linker's name has no number.
ln -s "libupcall_c.so.$version" "$stage/new/lib/libupcall_c.so.0"
ln -s libupcall_c.so.0 "$stage/new/lib/libupcall_c.so"
quoted=$(printf '%s\n' "$prefix" | sed 's/[&|\\]/\\&/g')
sed -e "s|@PREFIX@|$quoted|" -e "s|@VERSION@|$version|" "$here/upcall.pc.in" \
    >"$stage/new/lib/pkgconfig/upcall.pc"
chmod 644 "$stage/new/lib/pkgconfig/upcall.pc"
for file in $files; do
    if [ -e "$root/$file" ] || [ -L "$root/$file" ]; then
        cp -pP "$root/$file" "$stage/old/$file"
    fi
done

for file in $files; do
    # Noted before the step, so that an interrupted step is undone too.
    placed="$placed $file"
    # -T: replaces a link to a folder, and never moves into that folder.
    mv -fT "$stage/new/$file" "$root/$file"
done
whole=yes
