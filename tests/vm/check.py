"""What only a machine with systemd and controllers shows, as an ordinary user. Runs in the guest as root: it logs that user in
and out, types what the page for operators says, and looks at what becomes of it.
"""

import login
import limits
import service
from harness import area, counts, run, say
from wire import Wire


def main():
    say(run("systemctl", "--version").stdout.splitlines()[0] + ", kernel " + run("uname", "-r").stdout.strip())
    held = login.Login()
    area("units", service.units)
    area("socket and first client", service.first_client)
    area("delegation", service.delegation)
    area("lingering is off", service.lingering_off)
    area("limits", lambda: limits.main(Wire().open()))
    area("reload", service.reloading)
    area("ready after restore", service.ready_after_restore)
    area("crash", service.crash)
    area("watchdog", service.watchdog)
    area("stop", service.stop)
    area("restart", service.restart)
    area("shutdown by a client", service.shutdown)
    box = [held]
    area("logout without lingering", lambda: box.append(login.without_lingering(box[-1])))
    area("logout with lingering", lambda: box.append(login.with_lingering(box[-1])))
    total = sum(counts.values())
    say(f"{total} checks: {counts['ok']} held, {counts['FAILED']} failed, {counts['skipped']} skipped")


main()
