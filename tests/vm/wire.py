"""A client that speaks the wire by hand, as the ordinary user of the guest."""

import json
import os
import socket
import struct
import time

UID = 1000
SOCKET = f"/run/user/{UID}/procd/procd.sock"
CONNECT_SECONDS = 240


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, method, error):
        super().__init__(f"{method}: {error}")
        self.error = error


class Wire:
    def __init__(self, opened=None):
        """A connection; with what another one's `session/open` said, of the same session."""
        self.socket = connect()
        self.next = 1
        self.hello = self.ok("hello", client={"name": "vm", "version": "1"}, versions=[1])
        if opened:
            named = {name: opened[name] for name in ("session_id", "loop_id", "session_key")}
            self.ok("session/attach", **named)
            self.opened = opened

    def open(self):
        self.opened = self.ok("session/open")
        return self

    def read(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError("the daemon closed")
            data += more
        return data

    def send(self, method, **params):
        number, self.next = self.next, self.next + 1
        text = json.dumps({"id": number, "method": method, "params": params}).encode()
        self.socket.sendall(struct.pack(">I", len(text)) + text)
        return number

    def call(self, method, **params):
        number = self.send(method, **params)
        while True:
            (length,) = struct.unpack(">I", self.read(4))
            reply = json.loads(self.read(length))
            if reply.get("id") == number:
                return reply

    def ok(self, method, **params):
        reply = self.call(method, **params)
        if "error" in reply:
            raise Refused(method, reply["error"])
        return reply["result"]

    def start(self, argv, **more):
        return self.ok("process/start", argv=argv, cwd="/tmp", **more)

    def background(self, argv, **more):
        return self.start(argv, background=True, **more)["process_id"]

    def record(self, process):
        return self.ok("process/inspect", process_id=process)["record"]

    def until_says(self, process, word):
        """Waits until the output of a process holds a word."""
        deadline = time.monotonic() + CONNECT_SECONDS
        while time.monotonic() < deadline:
            entry = self.ok("process/output", process_id=process, cursor=0)["results"][0]
            if word in entry["output"]:
                return
            time.sleep(0.2)
        raise AssertionError(f"it never said {word}")


def connect():
    """As the ordinary user: the kernel notes who connects at that moment."""
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(CONNECT_SECONDS)
        os.setegid(UID)
        os.seteuid(UID)
        try:
            link.connect(SOCKET)
            return link
        except OSError:
            link.close()
            if time.monotonic() > deadline:
                raise
        finally:
            os.seteuid(0)
            os.setegid(0)
        time.sleep(0.2)
