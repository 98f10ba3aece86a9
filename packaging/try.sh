#!/bin/sh
# Installs a package into a small Debian system, runs a command under it, removes it, and looks for
# what is left. Alone in a PID namespace: whatever it starts ends with it.
#   packaging/try.sh SYSTEM PACKAGE
set -eu
system=$(cd "$1" && pwd)
package=$2
cp "$package" "$system/tmp/procd.deb"
trap 'rm -f "$system/tmp/procd.deb"' EXIT
unshare --mount --pid --fork --kill-child --mount-proc="$system/proc" \
    chroot "$system" /bin/sh -eu <<'END'
export HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
dpkg --install /tmp/procd.deb
files=$(dpkg --listfiles procd)
procctl run -- sh -c 'echo hello from the package'
procctl status
procctl man status | head -n 1
procctl shutdown
dpkg --purge procd
for file in $files; do
    if [ -f "$file" ]; then
        echo "left: $file" >&2
        exit 1
    fi
done
rm -rf /root/.local /tmp/procd-0
echo "nothing is left"
END
