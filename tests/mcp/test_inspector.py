"""The bridge with the Inspector's command line: a client, and a bridge, for every call."""

import json
import os
import subprocess
import unittest

from fixture import BINARIES, STEP, Places

INSPECTOR = os.environ["PROCD_TEST_INSPECTOR"]


class Inspector(Places):
    """Each call is a bridge of its own: only the session file says what they have in common."""

    def inspect(self, method, *arguments):
        bridge = BINARIES / "procd-mcp"
        asked = subprocess.run(
            ["node", INSPECTOR, "--cli", bridge, "--method", method, *arguments],
            env={**self.environment, "PROCD_SESSION_FILE": str(self.session_file)},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=4 * STEP,
        )
        self.assertEqual(asked.returncode, 0, asked.stdout + asked.stderr)
        return json.loads(asked.stdout)

    def call(self, name, **arguments):
        words = []
        for field, value in arguments.items():
            text = value if isinstance(value, str) else json.dumps(value)
            words += ["--tool-arg", f"{field}={text}"]
        return self.inspect("tools/call", "--tool-name", name, *words)

    def test_the_tools_are_listed_and_do_what_they_say(self):
        tools = self.inspect("tools/list")["tools"]
        names = ["Bash", "ProcessOutput", "ProcessInput", "ProcessStop", "ProcessList"]
        self.assertEqual([tool["name"] for tool in tools], names)
        self.assertTrue(all(tool["inputSchema"]["properties"] for tool in tools))

        ended = self.call("Bash", command="echo hello; exit 3")["structuredContent"]
        self.assertEqual((ended["output"], ended["exit_code"]), ("hello\n", 3))

        line = "echo ready; read -r line; echo got $line; sleep 600"
        handed = self.call("Bash", command=line, yield_time_ms=1)["structuredContent"]
        process = handed["process_id"]
        self.assertEqual((handed["state"], handed["woke_by"]), ("running", "timeout"))
        ready = self.call("ProcessOutput", process_id=process, match="ready\n")
        self.assertEqual(ready["structuredContent"]["woke_by"], "match")
        self.call("ProcessInput", process_id=process, data="it\n")
        got = self.call("ProcessOutput", process_id=process, match="got it")
        self.assertIn("got it", got["content"][0]["text"])
        stopped = self.call("ProcessStop", process_id=process, mode="kill")["structuredContent"]
        self.assertEqual(stopped["state"], "killed")
        listed = self.call("ProcessList", state="killed")["structuredContent"]["processes"]
        self.assertEqual([found["process_id"] for found in listed], [process])

    def test_a_bad_argument_is_a_result_that_can_be_read(self):
        refused = self.call("ProcessOutput", process_id="nonsense")
        self.assertTrue(refused["isError"])
        self.assertIn("22 characters", refused["content"][0]["text"])

    def test_the_resources_are_listed_and_read(self):
        started = self.call("Bash", command="echo hello")["structuredContent"]
        resources = self.inspect("resources/list")["resources"]
        uri = f"procd://process/{started['process_id']}/output"
        self.assertIn(uri, [resource["uri"] for resource in resources])
        templates = self.inspect("resources/templates/list")["resourceTemplates"]
        self.assertIn("procd://process/{id}", [found["uriTemplate"] for found in templates])


if __name__ == "__main__":
    unittest.main()
