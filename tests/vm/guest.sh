#!/bin/sh
# Runs in the guest as root, once it is up: starts the daemon as an ordinary user's unit, checks it
# as that user, and powers off.
say() { echo "PROCD-VM: $*" >/dev/ttyS0; }
as_user() {
    runuser -u tester -- env XDG_RUNTIME_DIR=/run/user/1000 DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus "$@"
}
tries=0
while [ ! -S /run/user/1000/bus ] && [ "$tries" -lt 120 ]; do
    tries=$((tries + 1))
    sleep 1
done
say "kernel $(uname -r), user manager up after $tries s"
unit=/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/procd.service
# The user manager of this systemd does not mark what it delegates: so the configuration names it.
as_user systemd-run --user --unit=procd -p Delegate=yes -p KillMode=mixed -p OOMPolicy=continue \
    -p TasksMax=infinity -p NoNewPrivileges=no --setenv=PROCD_CGROUP_ROOT="$unit" /opt/procd/procd >/dev/ttyS0 2>&1
as_user python3 -u /opt/procd/check.py >/dev/ttyS0 2>&1 || {
    say "a check failed"
    as_user journalctl --user -u procd --no-pager -n 40 >/dev/ttyS0 2>&1
}
as_user systemctl --user stop procd >/dev/ttyS0 2>&1
systemctl poweroff --force
