"""What the documents say to type works as written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from procd_client.sync import Session

from .support import PATIENCE, DaemonCase, binary

ROOT = Path(__file__).resolve().parents[1]


def blocks(path: Path) -> list[str]:
    """The Python examples of a page."""
    return re.findall(r"^```python\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)


class Documents(DaemonCase):
    def run_script(self, script: str) -> str:
        path = self.daemon.folder / "example.py"
        path.write_text(script)
        finished = subprocess.run(
            [sys.executable, str(path)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env=self.daemon.environment(),
            cwd=self.daemon.folder,
        )
        self.assertEqual(finished.returncode, 0, finished.stderr)
        return finished.stdout

    def test_the_first_example_of_the_readme_runs_as_written(self) -> None:
        self.daemon.kill()
        output = self.run_script(blocks(ROOT / "README.md")[0])
        self.assertEqual(output, "hello\nexit code 3\n")
        subprocess.run([binary("procctl"), "shutdown"], check=True, env=self.daemon.environment())

    def test_every_example_of_the_page_runs_as_written(self) -> None:
        page = ROOT.parents[1] / "docs/clients-python.md"
        examples = blocks(page)
        self.assertGreaterEqual(len(examples), 3)
        for example in examples:
            with self.subTest(example=example):
                expected = re.findall(r"^# prints: (.*)$", example, re.MULTILINE)
                self.assertEqual(self.run_script(example).splitlines(), expected)

    def test_the_blocking_client_does_the_same(self) -> None:
        with Session.open(self.daemon.socket) as session:
            process = session.start("echo up; cat", background=True)
            self.assertEqual(process.wait_for("up").text, "up")
            process.write("hello\n", eof=True)
            text = "".join(page.output or "" for page in process.follow())
            self.assertEqual(text, "up\nhello\n")
            self.assertEqual(process.wait().exit_code, 0)
            completions = session.notifications()
            self.assertEqual(next(completions).process_id, process.id)
            self.assertEqual(process.export()[0], b"up\nhello\n")
            credentials = session.credentials
        with Session.attach(credentials, self.daemon.socket) as session:
            self.assertEqual([record.process_id for record in session.records()], [process.id])
            self.assertEqual(session.close().stopped, 0)
