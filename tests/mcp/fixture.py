"""A private daemon of its own for each test of the bridge, and what ends it."""

import asyncio
import json
import logging
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from mcp import Client
from mcp.client.stdio import StdioServerParameters

BINARIES = pathlib.Path(os.environ["PROCD_TEST_BINARIES"])
# A busy machine is no news.
logging.getLogger("asyncio").setLevel(logging.ERROR)
# What any single step may take on a busy machine. A limit, never a pause.
STEP = 60


class Places(unittest.TestCase):
    """The folder of a test: socket, state, session file. Nothing is left of it."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="procd-mcp-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.addCleanup(self.procctl, "shutdown")
        self.session_file = self.folder / "session.json"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PROCD_SOCKET": str(self.folder / "sock"),
            "PROCD_STATE_DIR": str(self.folder / "state"),
            "PROCD_CONFIG": str(self.folder / "config.toml"),
            "PROCD_DAEMON": str(BINARIES / "procd"),
        }
        (self.folder / "config.toml").write_text("")

    def procctl(self, *arguments):
        return subprocess.run(
            [BINARIES / "procctl", *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=4 * STEP,
        )

    def records(self):
        """Every process there is, as an operator sees it."""
        listed = self.procctl("--operator", "ps", "-a", "--format", "json")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        return json.loads(listed.stdout)

    def daemon_pid(self):
        """The pid of this test's own daemon, as it says it itself."""
        status = self.procctl("--operator", "status", "--format", "json")
        return json.loads(status.stdout)["pid"]

    def server(self, *arguments, keeps_session=True):
        """The bridge; its pid is in `bridge.pid`."""
        kept = ["--session-file", str(self.session_file)] if keeps_session else []
        line = 'echo $$ >"$0"; exec "$@"'
        pid_file = str(self.folder / "bridge.pid")
        command = [line, pid_file, str(BINARIES / "procd-mcp"), *kept, *arguments]
        return StdioServerParameters(
            command="/bin/sh", args=["-c", *command], env=self.environment, cwd=self.folder
        )

    def bridge_pid(self):
        return int((self.folder / "bridge.pid").read_text())


class Bridge(Places, unittest.IsolatedAsyncioTestCase):
    """A client of the Python SDK in front of the bridge."""

    mode = "auto"

    def client(self, *arguments, keeps_session=True, **options):
        server = self.server(*arguments, keeps_session=keeps_session)
        return Client(server, mode=self.mode, read_timeout_seconds=STEP, **options)

    async def call(self, client, name, **arguments):
        """A call that has to succeed: its structured content, with the text as `text`."""
        result = await client.call_tool(name, arguments)
        self.assertFalse(result.is_error, result.content)
        return dict(result.structured_content, text=result.content[0].text)

    async def refused(self, client, name, **arguments):
        """A call that has to be refused by a result the model can read: its text."""
        result = await client.call_tool(name, arguments)
        self.assertTrue(result.is_error, result.content)
        self.assertIsNone(result.structured_content)
        return result.content[0].text

    async def read(self, client, process, **arguments):
        """The one entry of a `ProcessOutput`."""
        result = await self.call(client, "ProcessOutput", process_id=process, **arguments)
        (entry,) = result["results"]
        return dict(entry, text=result["text"], woke_by=result["woke_by"])

    async def until(self, what, look):
        """Looks until there is something; there is nothing that could announce it."""
        async with asyncio.timeout(STEP):
            while not (found := await look()):
                await asyncio.sleep(0.02)
        self.assertTrue(found, what)
        return found

    async def listed(self, client, label):
        listed = await self.call(client, "ProcessList", label=label)
        return listed["processes"]
