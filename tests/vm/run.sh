#!/bin/sh
# A small Debian guest with a real systemd, by software emulation: what needs a user manager or
# controllers of control groups is proven there, as an ordinary user. Called by `cargo xtask vm`, with
# the folder of the built binaries. The guest's root is built once (about 3 minutes) and kept in the
# cache folder. What is missing here is said as a skip, which is no failure.
set -eu

binaries=$1
cache=${PROCD_VM_CACHE:-target/vm}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
packages=systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,udev,kmod
packages=$packages,linux-image-cloud-amd64,initramfs-tools,passwd,procps,util-linux,python3,polkitd
seconds_max=${PROCD_VM_SECONDS:-2400}

skip() {
    echo "SKIPPED: the guest: $1"
    exit 0
}

[ "$(id -u)" = 0 ] || skip "building its root needs root"
[ "$(uname -m)" = x86_64 ] || skip "its kernel is for x86-64"
for tool in qemu-system-x86_64 debootstrap mke2fs; do
    command -v "$tool" >/dev/null || skip "no $tool (apt-get install qemu-system-x86 debootstrap e2fsprogs)"
done

mkdir -p "$cache"
cache=$(CDPATH='' cd -- "$cache" && pwd)
if [ "$(cat "$cache/built" 2>/dev/null)" != "$packages" ]; then
    rm -rf "$cache/root"
    debootstrap --variant=minbase --include="$packages" bookworm "$cache/root" >"$cache/build.log" 2>&1 ||
        skip "its packages cannot be had (see $cache/build.log)"
    echo "$packages" >"$cache/built"
fi

root=$cache/root
own=$root/opt/procd
rm -rf "$own"
mkdir -p "$own/failpoints" "$root/etc/systemd/system/multi-user.target.wants"
# As an operator does it; the daemon with named points beside it.
BIN=$binaries "$here/../../packaging/install.sh" "$root"
cp "$binaries/failpoints/procd" "$own/failpoints/"
if command -v strip >/dev/null; then
    strip --strip-debug "$root/usr/bin/procd" "$root/usr/bin/procctl" "$own/failpoints/procd"
fi
cp "$here/guest.sh" "$here"/*.py "$own/"
chmod 755 "$own/guest.sh"
grep -q '^tester:' "$root/etc/passwd" || chroot "$root" useradd -m -u 1000 -s /bin/bash tester
echo procd-guest >"$root/etc/hostname"
cp "$here/procd-check.service" "$root/etc/systemd/system/"
ln -sf ../procd-check.service "$root/etc/systemd/system/multi-user.target.wants/procd-check.service"
# A login on the console would hang up whoever writes to it already.
ln -sf /dev/null "$root/etc/systemd/system/serial-getty@ttyS0.service"

image=$cache/image
rm -f "$image"
mke2fs -q -t ext4 -d "$root" "$image" 1800M
log=$cache/console.log
kernel=$(ls "$root"/boot/vmlinuz-* | tail -n 1)
initrd=$(ls "$root"/boot/initrd.img-* | tail -n 1)
# The kernel tests its timer at the start, which an emulated one on a busy machine may fail.
timeout "$seconds_max" qemu-system-x86_64 -accel tcg -m 1024 -smp 2 -nographic -no-reboot \
    -kernel "$kernel" -initrd "$initrd" -append "root=/dev/vda rw console=ttyS0 quiet no_timer_check" \
    -drive "file=$image,format=raw,if=virtio" -net none </dev/null >"$log" 2>&1 || true
rm -f "$image"
grep -a 'PROCD-VM' "$log" | tr -d '\r' || true
if grep -aq 'PROCD-VM: [0-9]* checks: [1-9][0-9]* held, 0 failed' "$log"; then
    exit 0
fi
echo "the guest did not come to a good end; the last lines of its console:"
tail -n 60 "$log"
exit 1
