#!/bin/sh
# Puts procd in place: binaries, user units, completions, manual pages, documents.
#   packaging/install.sh FOLDER    the binaries come from $BIN, by default target/release
# FOLDER is the root of the system, or of a package; PREFIX (/usr) is where in it.
set -eu
cd "$(dirname "$0")/.."
root=$1
bin=${BIN:-target/release}
prefix=${PREFIX:-/usr}
to=$root$prefix

install -Dm755 "$bin/procd" "$to/bin/procd"
install -Dm755 "$bin/procctl" "$to/bin/procctl"
for unit in procd.service procd.socket; do
    install -d "$to/lib/systemd/user"
    sed "s|/usr/bin/procd|$prefix/bin/procd|" "systemd/$unit" >"$to/lib/systemd/user/$unit"
done
install -d "$to/share/bash-completion/completions" "$to/share/zsh/vendor-completions" \
    "$to/share/fish/vendor_completions.d" "$to/share/man/man1" "$to/share/doc/procd/examples"
"$bin/procctl" completion bash >"$to/share/bash-completion/completions/procctl"
"$bin/procctl" completion zsh >"$to/share/zsh/vendor-completions/_procctl"
"$bin/procctl" completion fish >"$to/share/fish/vendor_completions.d/procctl.fish"
"$bin/procctl" man --folder "$to/share/man/man1"
gzip -9nf "$to"/share/man/man1/procctl*.1
install -m644 README.md CHANGELOG.md docs/OPERATIONS.md docs/CONTAINMENT.md protocol/PROTOCOL.md "$to/share/doc/procd/"
install -m644 docs/config.example.toml "$to/share/doc/procd/examples/config.toml"
