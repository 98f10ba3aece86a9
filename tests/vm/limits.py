"""Limits that control groups hold, for an ordinary user, also in a namespace of the process's own."""

import os
import time

from harness import check, main_pid, show
from wire import Refused


def applied(record, name):
    return record["limits"][name]["applied"]


def all_required(wire):
    limits = {"memory_bytes_max": 256 << 20, "cpu_max": 1.5, "pids_max": 50}
    entry = wire.start(["true"], limits=limits, limits_required=True)
    check("all three can be required", entry["exit_code"] == 0, entry)


def pids(wire, where, more):
    limit = 20
    line = "i=0; while [ $i -lt 200 ]; do sleep 60 & i=$((i+1)); done 2>/dev/null; :"
    bomb = f"(bash -c '{line}') & (bash -c '{line}') & sleep 3; wait"
    process = wire.background(["bash", "-c", bomb], limits={"pids_max": limit}, **more)
    most = 0
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and most < limit:
        most = max(most, wire.ok("process/inspect", process_id=process)["live_descendants"] + 1)
        time.sleep(0.2)
    # At the number it stays there.
    for _ in range(20):
        time.sleep(0.2)
        most = max(most, wire.ok("process/inspect", process_id=process)["live_descendants"] + 1)
    wire.ok("process/stop", process_id=process, mode="kill")
    record = wire.record(process)
    check(f"pids_max is held by the control group{where}", applied(record, "pids_max") == "cgroup", record)
    # The init of a namespace is one of the group, and none of the tree.
    exact = limit - 1 if more else limit
    check(f"a fork bomb stops at {limit}{where}", exact <= most <= limit, most)
    check(f"the record names pids{where}", record.get("limit_exceeded") == "pids", record)


def memory(wire, where, more):
    hog = "x = []\nwhile True: x.append(bytearray(1 << 20))"
    limits = {"memory_bytes_max": 48 << 20}
    entry = wire.start(["python3", "-c", hog], limits=limits, yield_time_ms=120_000, **more)
    record = wire.record(entry["process_id"])
    check(f"memory_bytes_max is held by the control group{where}", applied(record, "memory_bytes_max") == "cgroup", record)
    check(f"its end is an OOM kill, and recognised{where}", record.get("oom_killed") is True, record)
    check(f"the record names memory{where}", record.get("limit_exceeded") == "memory", record)
    end = (record["state"], record.get("exit_code"))
    check(f"the end is what was observed{where}", end == ("exited", 137), record)


def cpu(wire, where, more):
    cores = 0.25
    process = wire.background(["sh", "-c", "while :; do :; done"], limits={"cpu_max": cores}, **more)
    time.sleep(2)
    used_ms = lambda: wire.ok("process/inspect", process_id=process)["usage"]["cpu_ms"]
    before, began = used_ms(), time.monotonic()
    time.sleep(8)
    used = used_ms() - before
    passed = (time.monotonic() - began) * 1000
    wire.ok("process/stop", process_id=process, mode="kill")
    record = wire.record(process)
    check(f"cpu_max is held by the control group{where}", applied(record, "cpu_max") == "cgroup", record)
    came_out = used / passed
    check(f"cpu_max {cores} came out as {came_out:.2f} cores{where}", came_out <= cores * 1.25, (used, passed))


def access(wire, where, more):
    """The kernel of the guest is older than truncation in Landlock: a clear refusal, or the real thing."""
    claim = {"root": "/tmp", "access": "read_only", "enforce": True}
    try:
        entry = wire.start(["touch", "/tmp/made"], workspace=claim, **more)
        check(f"access is enforced{where}", entry["exit_code"] != 0, entry)
    except Refused as refused:
        error = refused.error
        holds = error["code"] == "lifetime_enforcement_unavailable" and "missing" in error["details"]
        check(f"an older Landlock is refused{where}: {error['message']}", holds, error)
    check(f"nothing was made{where}", not os.path.exists("/tmp/made"))


def everything(wire):
    """A namespace with all three limits at once, and a tree in it."""
    limits = {"memory_bytes_max": 256 << 20, "cpu_max": 1.5, "pids_max": 50, "open_files_max": 64}
    line = "ulimit -n; sleep 600 & cd /proc; echo [0-9]*"
    entry = wire.start(["sh", "-c", line], limits=limits, limits_required=True, isolate=True)
    record = wire.record(entry["process_id"])
    check("a namespace and every limit go together", entry["output"].startswith("64\n1 2 "), entry)
    check("its record says both", record["tier"] == "pidns" and applied(record, "cpu_max") == "cgroup", record)


def main(wire):
    daemon = main_pid()
    all_required(wire)
    for where, more in (("", {}), (", isolated", {"isolate": True})):
        for one in (pids, memory, cpu, access):
            one(wire, where, more)
    everything(wire)
    properties = show()
    goes_on = (main_pid(), properties["ActiveState"], properties["Result"])
    check("the unit goes on when a command was killed for memory", goes_on == (daemon, "active", "success"), goes_on)
