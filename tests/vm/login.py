"""What a login and its end mean, with lingering and without."""

import os
import pathlib
import subprocess
import time

from harness import RUNTIME, as_user, check, ctl, documented, is_alive, main_pid, run, say, show, until
from service import heard, how_ended, polite_tree
from wire import UID, Wire

LINGER = pathlib.Path("/var/lib/systemd/linger/tester")
# The manager of a user stays so long after the last logout (UserStopDelaySec).
STAYS_SECONDS = 10


class Login:
    """A login session, through PAM, for as long as it is held."""

    def __init__(self):
        self.shell = subprocess.Popen(["su", "-l", "tester", "-c", "exec sleep 100000"])
        until("the user manager is up", lambda: os.path.exists(f"{RUNTIME}/bus"))
        until("it answers", lambda: as_user("systemctl", "--user", "show-environment").returncode == 0)
        # With lingering the manager was there before the session.
        until("the session is open", lambda: "tester" in run("loginctl", "list-sessions", "--no-legend").stdout)
        check("the user is logged in", True)

    def end(self):
        self.shell.terminate()
        self.shell.wait()
        until("the session is closed", lambda: "tester" not in run("loginctl", "list-sessions", "--no-legend").stdout)


def manager_state():
    return run("systemctl", "show", "-p", "ActiveState", "--value", f"user@{UID}.service").stdout.strip()


def processes_of_user():
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and folder.stat().st_uid == UID and is_alive(folder.name):
                found.append(f"{folder.name} {(folder / 'comm').read_text().strip()}")
        except OSError:
            pass
    return found


def without_lingering(login):
    wire = Wire().open()
    process, tree = polite_tree(wire)
    daemon = main_pid()
    login.end()
    began = time.monotonic()
    until("the user manager ends", lambda: manager_state() == "inactive")
    say(f"the user manager ended {time.monotonic() - began:.0f} s after the logout")
    left = [pid for pid in [daemon, *tree] if is_alive(pid)]
    check("without lingering everything ends with the login", not left, left)
    check("nothing of the user is left", not processes_of_user(), processes_of_user())
    check("the command was ended politely", heard() == "TERM\n", repr(heard()))
    login = Login()
    check("the socket listens again at the next login", show("procd.socket")["ActiveState"] == "active")
    end = how_ended(Wire(wire.opened).record(process))
    check("the record says that the daemon was ended", end == ("terminated", "runner-shutdown", 7), end)
    return login


def with_lingering(login):
    documented("loginctl enable-linger")
    check("lingering is on", LINGER.exists())
    as_user("systemctl", "--user", "stop", "procd")
    doctor = ctl("doctor")
    check("`procctl doctor` has nothing to say of lingering", "nothing ends with a login" in doctor, doctor)
    wire = Wire().open()
    process, tree = polite_tree(wire)
    daemon = main_pid()
    login.end()
    # Twice as long as the manager would have stayed.
    deadline = time.monotonic() + 2 * STAYS_SECONDS
    while time.monotonic() < deadline and all(map(is_alive, [daemon, *tree])):
        time.sleep(0.5)
    gone = [pid for pid in [daemon, *tree] if not is_alive(pid)]
    check("with lingering daemon and process live on after the logout", not gone, gone)
    check("so does the user manager", manager_state() == "active", manager_state())
    login = Login()
    check("it is the same daemon at the next login", main_pid() == daemon)
    record = Wire(wire.opened).record(process)
    check("the process runs on", record["state"] == "running" and heard() == "", record)
    Wire(wire.opened).ok("process/stop", process_id=process, mode="kill")
    return login
