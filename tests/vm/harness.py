"""What the checks in the guest share: the report, the ordinary user, the user manager.

Each line that begins with PROCD-VM is part of the report: one a check, and at the end the counts.
"""

import os
import pathlib
import subprocess
import time
import traceback

from wire import UID

HOME = pathlib.Path("/home/tester")
RUNTIME = f"/run/user/{UID}"
USER_GROUP = pathlib.Path(f"/sys/fs/cgroup/user.slice/user-{UID}.slice/user@{UID}.service")
UNIT_GROUP = USER_GROUP / "app.slice/procd.service"
DROP_INS = HOME / ".config/systemd/user/procd.service.d"
MANUAL = pathlib.Path("/usr/share/doc/procd/OPERATIONS.md")
# The machine is emulated: everything takes long, and nothing is to be measured here.
PATIENCE = 300

counts = {"ok": 0, "FAILED": 0, "skipped": 0}


def say(text):
    print("PROCD-VM:", text, flush=True)


def note(kind, text):
    counts[kind] += 1
    say(f"{kind}: {text}")


def check(what, holds, told=""):
    """One check. A failure is told, and the others go on."""
    if holds:
        note("ok", what)
    else:
        note("FAILED", f"{what}: {told}"[:1500])
    return holds


def skip(what, why):
    note("skipped", f"{what}: {why}")


def area(name, function, *arguments):
    """Some checks that need each other: what breaks off is a failure of its own."""
    began = time.monotonic()
    say(f"-- {name}")
    try:
        function(*arguments)
    except Exception as error:  # whatever it is, the rest has to run
        note("FAILED", f"{name} broke off: {error!r}"[:1500])
        traceback.print_exc()
        print(run("journalctl", "--no-pager", "-n", "40", f"_UID={UID}").stdout, flush=True)
    say(f"-- {name}: {time.monotonic() - began:.0f} s")


def until(what, look, seconds=PATIENCE):
    """Looks until there is something."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.2)


def run(*argv, **more):
    more.setdefault("timeout", PATIENCE)
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


def as_user(*argv):
    """A command of the ordinary user, outside of any login session."""
    environment = {
        "HOME": str(HOME),
        "USER": "tester",
        "LOGNAME": "tester",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "SYSTEMD_PAGER": "",
        "COLUMNS": "160",
        "XDG_RUNTIME_DIR": RUNTIME,
        "DBUS_SESSION_BUS_ADDRESS": f"unix:path={RUNTIME}/bus",
    }
    return run(*argv, user=UID, group=UID, extra_groups=[], env=environment, cwd=HOME)


def user(*argv):
    """The same, of one that has to succeed: what it wrote."""
    done = as_user(*argv)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(argv)}: {done.returncode}: {done.stdout}")
    return done.stdout


def documented(command):
    """A command that the page for operators has, as written there, typed by the user who is logged in."""
    check(f"`{command}` is in the page for operators", f"`{command}`" in MANUAL.read_text())
    done = run("su", "-l", "tester", "-c", command)
    check(f"`{command}` succeeds", done.returncode == 0, done.stdout)
    return done.stdout


def ctl(*words):
    return user("procctl", *words)


def show(unit="procd.service"):
    """The properties of a unit of the user manager."""
    text = user("systemctl", "--user", "show", unit)
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def main_pid():
    return int(show()["MainPID"])


def until_active():
    return until("the unit is active", lambda: show()["ActiveState"] == "active" and show())


def drop_in(text):
    """Changes the unit for the time being; none takes the change back."""
    file = DROP_INS / "checked.conf"
    if text is None:
        file.unlink(missing_ok=True)
    else:
        for folder in (HOME / ".config", HOME / ".config/systemd", DROP_INS.parent, DROP_INS):
            folder.mkdir(exist_ok=True)
            os.chown(folder, UID, UID)
        file.write_text(text)
    user("systemctl", "--user", "daemon-reload")


def is_alive(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rsplit(") ", 1)[1][0] not in "ZX"


def group_of(pid):
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return line[3:]
    return ""


def children_of(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def pids_of(wire, process):
    """The processes of a tree, as an operator sees them."""
    return wire.ok("process/inspect", process_id=process)["pids"]
