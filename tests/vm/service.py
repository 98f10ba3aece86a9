"""The user units: verified, started by the first client, watched, stopped, restarted."""

import os
import time

from harness import (
    HOME, MANUAL, RUNTIME, UNIT_GROUP, as_user, check, children_of, ctl, documented, drop_in, group_of, is_alive, main_pid,
    pids_of, run, say, show, until, until_active, user,
)
from wire import UID, Wire

FAILPOINTS = "/opt/procd/failpoints/procd"
TRACE = HOME / "trace"
NAME_BYTES = 48
# Notes each SIGTERM, and ends by it with a code of its own.
POLITE = 'trap "echo TERM >>$HOME/heard; exit 7" TERM; sleep 3000 & echo up; wait'
# Ends by nothing polite, and neither does its child.
STUBBORN = '(trap "" TERM; while :; do sleep 0.2; done) & trap "" TERM; echo up; while :; do sleep 0.2; done'


def units():
    folder = "/usr/lib/systemd/user"
    done = as_user("systemd-analyze", "verify", "--user", "--man=no", f"{folder}/procd.service", f"{folder}/procd.socket")
    check("`systemd-analyze verify --user` is clean", done.returncode == 0 and "procd" not in done.stdout, done.stdout)


def first_client():
    documented("systemctl --user enable --now procd.socket")
    check("the socket is listened on", show("procd.socket")["ActiveState"] == "active")
    found = os.stat(f"{RUNTIME}/procd/procd.sock")
    folder = os.stat(f"{RUNTIME}/procd")
    rights = (found.st_mode & 0o777, folder.st_mode & 0o777, found.st_uid, folder.st_uid)
    check("it is closed to others", rights == (0o600, 0o700, UID, UID), rights)
    check("no daemon runs yet", show()["ActiveState"] == "inactive", show()["ActiveState"])
    status = ctl("status")
    properties = until_active()
    check("the first client starts the daemon", properties["NRestarts"] == "0", properties)
    check("it is answered", str(properties["MainPID"]) in ctl("status"), status)
    until("the manager is told what runs", lambda: show()["StatusText"].startswith("serving"))
    check("the manager knows what it does", True)


def contained(when):
    """Tier 1 with controllers, the daemon and its guardian in a leaf of their own."""
    wire = Wire().open()
    tier = wire.hello["containment"]["tier"]
    check(f"tier 1 without any configuration {when}", tier == "cgroup", wire.hello["containment"])
    pid = main_pid()
    groups = [group_of(one) for one in [pid, *children_of(pid)]]
    leaf = "/" + str(UNIT_GROUP.relative_to("/sys/fs/cgroup")) + "/supervisor"
    check(f"daemon and guardian are in the leaf `supervisor` {when}", len(groups) == 2 and set(groups) == {leaf}, groups)
    handed = set((UNIT_GROUP / "cgroup.subtree_control").read_text().split())
    check(f"controllers are handed down {when}", {"memory", "cpu", "pids"} <= handed, handed)
    entry = wire.start(["true"], limits={"pids_max": 50, "memory_bytes_max": 1 << 28, "cpu_max": 1}, limits_required=True)
    check(f"limits are held by control groups {when}", entry["exit_code"] == 0, entry)
    return wire


def delegation():
    wire = contained("at the first start")
    marks = []
    for name in ("user.delegate", "trusted.delegate"):
        try:
            marks.append(f"{name}={os.getxattr(UNIT_GROUP, name).decode()}")
        except OSError:
            marks.append(f"no {name}")
    say(f"the manager's mark of delegation: {', '.join(marks)}")
    check("`Delegate=yes` is in force", show()["Delegate"] == "yes")
    environment = wire.start(["env"])["output"]
    private = ["LISTEN_", "NOTIFY_SOCKET", "WATCHDOG_", "PROCD_", "INVOCATION_ID", "XDG_RUNTIME_DIR"]
    leaked = [name for name in private if name in environment]
    check("a command gets nothing that the manager gave to the daemon", not leaked, leaked)
    doctor = ctl("doctor")
    check("`procctl doctor` says tier 1", "tier 1: a control group for each process" in doctor, doctor)


def lingering_off():
    done = as_user("procctl", "doctor")
    text = " ".join(done.stdout.split())
    sentence = "lingering is off: the daemon and every process end when you log out; `loginctl enable-linger` keeps them"
    check("`procctl doctor` says that lingering is off, and what to do", sentence in text, done.stdout)
    check("`journalctl --user -u procd` is in the page for operators", "`journalctl --user -u procd`" in MANUAL.read_text())
    written = lambda: run("journalctl", "--no-pager", "_SYSTEMD_USER_UNIT=procd.service", f"_UID={UID}").stdout
    check("the daemon has warned once", written().count("lingering is off") == 1, written()[-800:])
    done = as_user("journalctl", "--user", "-u", "procd", "--no-pager")
    check("its user reads that too", "lingering is off" in done.stdout, done.stdout[-800:])


def setting(key):
    line = next((line for line in ctl("config").splitlines() if line.split()[:1] == [key]), "")
    return line


def reloading():
    file = HOME / ".config/procd/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    os.chown(file.parent, UID, UID)
    pid = main_pid()
    file.write_text("[limits]\nrunning_loop_max = 5\n")
    user("systemctl", "--user", "reload", "procd")
    until("the new value is in force", lambda: " 5 " in setting("limits.running_loop_max") + " ")
    check("`systemctl --user reload` reads the configuration again", main_pid() == pid)
    file.write_text("[limits]\nrunning_lop_max = 5\n")
    user("systemctl", "--user", "reload", "procd")
    said = lambda: "the old one is kept" in run("journalctl", "--no-pager", "_SYSTEMD_USER_UNIT=procd.service").stdout
    until("a bad one is told", said)
    check("a bad one changes nothing", main_pid() == pid and " 5 " in setting("limits.running_loop_max") + " ")
    file.unlink()
    user("systemctl", "--user", "reload", "procd")
    until("the default is back", lambda: " 8 " in setting("limits.running_loop_max") + " ")
    until_active()


def held():
    """The point at which a thread of the daemon is held."""
    try:
        return TRACE.read_text()[NAME_BYTES:].strip()
    except OSError:
        return ""


def with_failpoints(points):
    TRACE.unlink(missing_ok=True)
    drop_in(f"[Service]\nExecStart=\nExecStart={FAILPOINTS}\nEnvironment=PROCD_FAILPOINTS={points}\n"
            f"Environment=PROCD_FAILPOINT_TRACE={TRACE}\n")


def ready_after_restore():
    with_failpoints("restore-taken-over=pause:20000")
    user("systemctl", "--user", "restart", "--no-block", "procd")
    until("the restore is held", lambda: held() == "restore-taken-over")
    state = show()["ActiveState"]
    was_held = held() == "restore-taken-over"
    check("the unit is not active before the restore is over", was_held and state == "activating", (was_held, state))
    until_active()
    check("and active when it is", held() == "", held())
    drop_in(None)


def lost(wire, process, tree, when):
    """A process of a daemon that was killed: gone, and recorded as that."""
    until("its tree is gone", lambda: not any(map(is_alive, tree)))
    until("the manager has started the daemon again", lambda: show()["ActiveState"] == "active")
    after = Wire(wire.opened)
    record = after.record(process)
    check(f"the record is `lost_on_restore` {when}", record["state"] == "lost_on_restore", record)
    check("`procctl ps -a` shows it", "lost_on_restore" in ctl("ps", "-a"))
    return after


def watchdog():
    with_failpoints("start-registered=pause:600000@2")
    user("systemctl", "--user", "restart", "procd")
    wire = Wire().open()
    process = wire.background(["sh", "-c", "echo up; sleep 600"])
    wire.until_says(process, "up")
    operator = Wire()
    operator.ok("operator/attach", reason="checks")
    tree = pids_of(operator, process)
    pid, restarts = main_pid(), int(show()["NRestarts"])
    wire.send("process/start", argv=["true"], cwd="/tmp")
    until("the supervisor hangs", lambda: held() == "start-registered")
    began = time.monotonic()
    until("the watchdog ends it", lambda: not is_alive(pid))
    say(f"the watchdog took {time.monotonic() - began:.0f} s")
    until("it is started again", lambda: int(show()["NRestarts"]) > restarts and show()["ActiveState"] == "active")
    check("a daemon that hangs is killed and started again by the manager", main_pid() != pid)
    journal = run("journalctl", "--no-pager", "-n", "200", f"_UID={UID}").stdout
    check("it was the watchdog", "watchdog" in journal.lower(), journal[-800:])
    lost(wire, process, tree, "after the watchdog")
    drop_in(None)
    user("systemctl", "--user", "restart", "procd")
    contained("after the watchdog")


def crash():
    wire = Wire().open()
    process = wire.background(["sh", "-c", "setsid sleep 600 & echo up; sleep 600"])
    wire.until_says(process, "up")
    operator = Wire()
    operator.ok("operator/attach", reason="checks")
    tree = pids_of(operator, process)
    user("systemctl", "--user", "kill", "--kill-whom=main", "-s", "KILL", "procd")
    lost(wire, process, tree, "after SIGKILL")
    contained("after SIGKILL")


def polite_tree(wire):
    """Started, and its processes."""
    (HOME / "heard").unlink(missing_ok=True)
    process = wire.background(["sh", "-c", POLITE], env={"HOME": str(HOME)})
    wire.until_says(process, "up")
    operator = Wire()
    operator.ok("operator/attach", reason="checks")
    return process, pids_of(operator, process)


def how_ended(record):
    """State, reason, and the code of the leader if it had one."""
    return record["state"], record["reason"], record.get("leader", {}).get("code")


def heard():
    try:
        return (HOME / "heard").read_text()
    except OSError:
        return ""


def stop():
    wire = Wire().open()
    polite, tree = polite_tree(wire)
    stubborn = wire.background(["sh", "-c", STUBBORN])
    wire.until_says(stubborn, "up")
    operator = Wire()
    operator.ok("operator/attach", reason="checks")
    tree = tree + pids_of(operator, stubborn)
    daemon = main_pid()
    own = [daemon, *children_of(daemon)]
    began = time.monotonic()
    documented("systemctl --user stop procd")
    took = time.monotonic() - began
    properties = show()
    bound = int(properties["TimeoutStopUSec"].rstrip("s")) if properties["TimeoutStopUSec"].endswith("s") else 30
    check(f"`systemctl --user stop` took {took:.0f} s of {bound}", took < bound, properties["TimeoutStopUSec"])
    end = (properties["Result"], properties["ExecMainStatus"], properties["ActiveState"])
    check("the daemon ended in order", end == ("success", "0", "inactive"), end)
    check("a polite command heard SIGTERM, once", heard() == "TERM\n", repr(heard()))
    left = [pid for pid in tree + own if is_alive(pid)]
    check("no process is left", not left, left)
    check("no control group is left", not UNIT_GROUP.exists())
    check("the socket goes on listening", show("procd.socket")["ActiveState"] == "active")
    after = Wire(wire.opened)
    ends = [how_ended(after.record(one)) for one in (polite, stubborn)]
    expected = [("terminated", "runner-shutdown", 7), ("killed", "runner-shutdown", None)]
    check("the records say how they ended, and why", ends == expected, ends)
    contained("after a stop")


def shutdown():
    restarts = show()["NRestarts"]
    ctl("shutdown")
    until("the daemon has ended", lambda: show()["ActiveState"] == "inactive")
    properties = show()
    end = (properties["Result"], properties["NRestarts"])
    check("`procctl shutdown` ends the unit in order, and nothing starts it again", end == ("success", restarts), end)
    ctl("status")
    until_active()
    check("but the next client", True)


def restart():
    wire = Wire().open()
    process, tree = polite_tree(wire)
    user("systemctl", "--user", "restart", "procd")
    after = Wire(wire.opened)
    end = how_ended(after.record(process))
    check("a restart ends politely what runs, and the record says so", end == ("terminated", "runner-shutdown", 7), end)
    check("it heard SIGTERM once: neither guardian nor manager sent another", heard() == "TERM\n", repr(heard()))
    left = [pid for pid in tree if is_alive(pid)]
    check("nothing of it is left after a restart", not left, left)
    contained("after a restart")
