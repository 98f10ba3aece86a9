"""What only a machine with controllers shows: limits that control groups hold, for an ordinary user.

Speaks the wire by hand. Each line that begins with PROCD-VM is part of the report.
"""

import json
import os
import socket
import struct
import time

SOCKET = "/run/user/1000/procd/procd.sock"


class Wire:
    def __init__(self):
        deadline = time.monotonic() + 120
        while True:
            try:
                self.socket = socket.socket(socket.AF_UNIX)
                self.socket.connect(SOCKET)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        self.next = 1
        self.hello = self.ok("hello", client={"name": "vm", "version": "1"}, versions=[1])

    def read(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError("the daemon closed")
            data += more
        return data

    def call(self, method, **params):
        number, self.next = self.next, self.next + 1
        text = json.dumps({"id": number, "method": method, "params": params}).encode()
        self.socket.sendall(struct.pack(">I", len(text)) + text)
        while True:
            (length,) = struct.unpack(">I", self.read(4))
            reply = json.loads(self.read(length))
            if reply.get("id") == number:
                return reply

    def ok(self, method, **params):
        reply = self.call(method, **params)
        if "error" in reply:
            raise AssertionError(f"{method}: {reply['error']}")
        return reply["result"]


def say(text):
    print("PROCD-VM:", text, flush=True)


def check(what, holds, told):
    if not holds:
        raise AssertionError(f"{what}: {told}")
    say(f"ok: {what}")


def record_of(wire, process):
    return wire.ok("process/inspect", process_id=process)["record"]


def start(wire, argv, **more):
    return wire.ok("process/start", argv=argv, cwd="/tmp", **more)


def pids(wire):
    limit = 20
    line = "i=0; while [ $i -lt 200 ]; do sleep 60 & i=$((i+1)); done 2>/dev/null; :"
    bomb = f"(bash -c '{line}') & (bash -c '{line}') & sleep 3; cat /proc/self/cgroup; wait"
    entry = start(wire, ["bash", "-c", bomb], limits={"pids_max": limit}, background=True)
    process = entry["process_id"]
    most = 0
    for _ in range(20):
        time.sleep(0.2)
        inspected = wire.ok("process/inspect", process_id=process)
        most = max(most, inspected["live_descendants"] + 1)
    wire.ok("process/stop", process_id=process, mode="kill")
    record = record_of(wire, process)
    check("pids_max is held by the control group", record["limits"]["pids_max"]["applied"] == "cgroup", record)
    check(f"a fork bomb stops at {limit}", 2 < most <= limit, most)
    check("the record names pids", record.get("limit_exceeded") == "pids", record)


def memory(wire):
    hog = "x = []\nwhile True: x.append(bytearray(1 << 20))"
    entry = start(wire, ["python3", "-c", hog], limits={"memory_bytes_max": 48 << 20}, yield_time_ms=120_000)
    record = record_of(wire, entry["process_id"])
    check("memory_bytes_max is held by the control group", record["limits"]["memory_bytes_max"]["applied"] == "cgroup", record)
    check("its end is an OOM kill, and recognised", record.get("oom_killed") is True, record)
    check("the record names memory", record.get("limit_exceeded") == "memory", record)
    check("the end is what was observed", (record["state"], record.get("exit_code")) == ("exited", 137), record)


def cpu(wire):
    cores = 0.25
    entry = start(wire, ["sh", "-c", "while :; do :; done"], limits={"cpu_max": cores}, background=True)
    process = entry["process_id"]
    time.sleep(2)
    before, began = wire.ok("process/inspect", process_id=process)["usage"]["cpu_ms"], time.monotonic()
    time.sleep(8)
    used = wire.ok("process/inspect", process_id=process)["usage"]["cpu_ms"] - before
    passed = (time.monotonic() - began) * 1000
    wire.ok("process/stop", process_id=process, mode="kill")
    record = record_of(wire, process)
    check("cpu_max is held by the control group", record["limits"]["cpu_max"]["applied"] == "cgroup", record)
    check(f"cpu_max {cores} came out as {used / passed:.2f} cores", used / passed <= cores * 1.25, (used, passed))


def all_required(wire):
    limits = {"memory_bytes_max": 256 << 20, "cpu_max": 1.5, "pids_max": 50}
    entry = start(wire, ["true"], limits=limits, limits_required=True)
    check("all three can be required", entry["exit_code"] == 0, entry)


def access(wire):
    """The kernel of the guest is older than truncation in Landlock: a clear refusal, or the real thing."""
    claim = {"root": "/tmp", "access": "read_only", "enforce": True}
    reply = wire.call("process/start", argv=["touch", "/tmp/made"], cwd="/tmp", workspace=claim)
    if "error" in reply:
        error = reply["error"]
        refused = error["code"] == "lifetime_enforcement_unavailable" and "missing" in error["details"]
        check(f"an older Landlock is refused: {error['message']}", refused, error)
    check("nothing was made", not os.path.exists("/tmp/made"), reply)


def main():
    wire = Wire()
    containment = wire.hello["containment"]
    check("tier 1 for an ordinary user", containment["tier"] == "cgroup" and os.getuid() == 1000, containment)
    wire.ok("session/open")
    for one in (all_required, pids, memory, cpu, access):
        one(wire)
    say("all held")


main()
