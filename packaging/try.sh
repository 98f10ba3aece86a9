#!/bin/sh
# Installs a package into a small Debian system, runs a command under it, removes it, and looks for
# what is left. Alone in a PID namespace: whatever it starts ends with it.
#   packaging/try.sh SYSTEM PACKAGE
set -eu
system=$(cd "$1" && pwd)
package=$2
tried=$(mktemp -d "$system/tmp/try.XXXXXX")
trap 'rm -rf "$tried"' EXIT
cp "$package" "$tried"
unshare --mount --pid --fork --kill-child --mount-proc="$system/proc" \
    chroot "$system" /bin/sh -eu -c "cd /tmp/${tried##*/}; . /dev/stdin" <<'END'
export HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive
apt-get install --yes ./procd_*.deb
files=$(dpkg --listfiles procd)
procctl run -- sh -c 'echo hello from the package'
procctl status
procctl man status | grep -q 'procctl-status'
# The same again while its daemon runs, which goes on.
procctl start --label waits -- sleep 600
apt-get install --yes --reinstall ./procd_*.deb
procctl ps --filter label=waits --filter state=running | grep waits
procctl shutdown
apt-get purge --yes procd
for file in $files; do
    if [ -f "$file" ]; then
        echo "left: $file" >&2
        exit 1
    fi
done
rm -rf /root/.local /tmp/procd-0
echo "nothing is left"
END
