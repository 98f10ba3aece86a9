#!/bin/sh
# Makes the Debian package and prints its path.
#   packaging/deb.sh FOLDER        the binaries come from $BIN, by default target/release
set -eu
cd "$(dirname "$0")/.."
out=$(mkdir -p "$1" && cd "$1" && pwd)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
tree=$(mktemp -d "$out/tree.XXXXXX")
trap 'rm -rf "$tree"' EXIT

packaging/install.sh "$tree"
if command -v strip >/dev/null; then
    strip --strip-unneeded "$tree/usr/bin/procd" "$tree/usr/bin/procctl"
fi
{
    echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
    echo
    echo "Files: *"
    echo "Copyright: the authors of procd"
    echo "License: MIT or Apache-2.0"
    echo
    sed 's/^$/./; s/^/ /' LICENSE-MIT
} >"$tree/usr/share/doc/procd/copyright"
mkdir "$tree/DEBIAN"
cat >"$tree/DEBIAN/control" <<END
Package: procd
Version: $version
Architecture: $architecture
Maintainer: the authors of procd <procd@localhost>
Installed-Size: $(du -ks "$tree/usr" | cut -f1)
Depends: libc6 (>= 2.34)
Section: admin
Priority: optional
Description: process supervisor for AI agents and the people who run them
 One daemon per user runs long commands, keeps their output within bounds on
 disk, and ends them with every process they started. procctl looks in.
END
(cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
find "$tree" -type d -exec chmod 755 {} +
package="$out/procd_${version}_$architecture.deb"
dpkg-deb --root-owner-group ${COMPRESSION:+-Z"$COMPRESSION"} --build "$tree" "$package" >&2
echo "$package"
