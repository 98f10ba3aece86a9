#!/bin/sh
# What a crash of the daemon leaves behind: starts a command, kills the daemon with SIGKILL,
# starts it again, and reads the record. The command is gone, its output is not, and its state is
# `lost_on_restore`: nobody saw how it ended, so no end is made up.
#
#   cargo build --release && docs/examples/lost-on-restore.sh
#
# Uses a configuration (an empty one), a state folder and a socket of its own, and removes them.
# BIN names another folder of binaries than target/release.
set -eu

bin=${BIN:-$(dirname "$0")/../../target/release}
bin=$(cd "$bin" && pwd)
work=$(mktemp -d /tmp/procd-example.XXXXXX)
export PROCD_STATE_DIR="$work/state" PROCD_SOCKET="$work/procd.sock"
export PROCD_CONFIG="$work/config.toml"
: >"$PROCD_CONFIG"
daemon=

# Starts the daemon and waits until it answers; its pid is then in $daemon.
start_daemon() {
    "$bin/procd" 2>>"$work/procd.log" &
    daemon=$!
    tries=0
    until "$bin/procctl" status >/dev/null 2>&1; do
        tries=$((tries + 1))
        if [ "$tries" -gt 200 ]; then
            echo "the daemon does not answer; its log:" >&2
            cat "$work/procd.log" >&2
            exit 1
        fi
        sleep 0.05
    done
}

clean_up() {
    if [ -n "$daemon" ]; then
        kill "$daemon" 2>/dev/null || true
        wait "$daemon" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

echo "1. start a command that writes a line and would then sleep for ten minutes"
start_daemon
id=$("$bin/procctl" start -- sh -c 'echo "some work done"; exec sleep 600')
tries=0
until [ "$("$bin/procctl" logs -- "$id")" = "some work done" ]; do
    tries=$((tries + 1))
    [ "$tries" -le 200 ] || { echo "no output of the command" >&2; exit 1; }
    sleep 0.05
done
"$bin/procctl" ps

echo
echo "2. kill the daemon (pid $daemon) with SIGKILL"
kill -9 "$daemon"
wait "$daemon" 2>/dev/null || true
daemon=

echo "3. start it again, and read the record"
start_daemon
"$bin/procctl" ps
"$bin/procctl" inspect -- "$id" >"$work/record.json"
grep -q '"state": *"lost_on_restore"' "$work/record.json" || {
    echo "the record does not say lost_on_restore:" >&2
    cat "$work/record.json" >&2
    exit 1
}

echo
echo "4. what it had written is still there:"
"$bin/procctl" logs -- "$id"
