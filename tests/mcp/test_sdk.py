"""The bridge with the client of the Python SDK, over both handshakes that it knows."""

import asyncio
import os
import signal
import unittest

from fixture import STEP, Bridge

TOOLS = {
    "Bash": "background command label max_output_bytes stdin timeout tty workdir yield_time_ms",
    "ProcessOutput": "cursor encoding fold limit_bytes match process_id process_ids tail_lines"
    " timeout_ms wait",
    "ProcessInput": "cols cursor data eof fold keys process_id rows yield_time_ms",
    "ProcessStop": "grace_ms mode process_id",
    "ProcessList": "label state",
}
REPL = "python3 -u -i -q -c 'import sys; sys.ps1 = \"ready> \"'"


class Story:
    """What holds over either handshake."""

    async def test_tools_are_listed_with_schemas(self):
        async with self.client() as client:
            self.assertEqual(client.protocol_version, self.version)
            self.assertEqual(client.server_info.name, "procd-mcp")
            tools = (await client.list_tools()).tools
            self.assertEqual([tool.name for tool in tools], list(TOOLS))
            for tool in tools:
                takes = " ".join(sorted(tool.input_schema["properties"]))
                self.assertEqual(takes, TOOLS[tool.name])
                self.assertIs(tool.input_schema["additionalProperties"], False)
                self.assertEqual(tool.output_schema["type"], "object")
                self.assertIsNotNone(tool.annotations.read_only_hint)

    async def test_a_command_in_the_foreground_gives_its_output_and_its_code(self):
        async with self.client() as client:
            ended = await self.call(client, "Bash", command="echo out; echo err >&2; exit 3")
            self.assertEqual((ended["state"], ended["exit_code"]), ("exited", 3))
            self.assertEqual(sorted(ended["output"].split()), ["err", "out"])
            self.assertFalse(ended["truncated"])
            self.assertIn("exited with code 3", ended["text"])
            # Nobody writes to its stdin: what reads it when it is there does not wait.
            self.assertEqual((await self.call(client, "Bash", command="cat"))["exit_code"], 0)
            where = await self.call(client, "Bash", command="pwd")
            self.assertEqual(where["output"].strip(), os.path.realpath(self.folder))
            late = await self.call(client, "Bash", command="sleep 600", timeout=0.2)
            self.assertEqual(late["state"], "timed_out")

    async def test_a_long_output_has_head_marker_and_tail(self):
        async with self.client() as client:
            long = await self.call(client, "Bash", command="seq 100000", max_output_bytes=200)
            self.assertTrue(long["truncated"])
            self.assertTrue(long["output"].startswith("1\n2\n"), long["output"])
            self.assertTrue(long["output"].endswith("100000\n"), long["output"])
            self.assertRegex(long["output"], r"\[\.\.\. \d+ bytes left out")

    async def test_a_command_is_handed_over_at_its_budget_and_goes_on(self):
        async with self.client() as client:
            line = "echo first; read -r line; echo got $line; sleep 600"
            handed = await self.call(client, "Bash", command=line, yield_time_ms=1)
            self.assertEqual((handed["state"], handed["woke_by"]), ("running", "timeout"))
            process = handed["process_id"]
            first = await self.read(client, process, match="first\n")
            self.assertEqual((first["woke_by"], first["output"]), ("match", "first\n"))
            # It was given a pipe, and reads from it.
            await self.call(client, "ProcessInput", process_id=process, data="it\n")
            cursor = first["next_cursor"]
            second = await self.read(client, process, match="got .*\n", cursor=cursor)
            self.assertEqual(second["match"]["text"], "got it\n")
            waited = await self.read(client, process, wait="exit", timeout_ms=50)
            self.assertEqual((waited["woke_by"], waited["state"]), ("timeout", "running"))
            stopped = await self.call(
                client, "ProcessStop", process_id=process, mode="terminate"
            )
            self.assertEqual(stopped["state"], "terminated")

    async def test_a_command_in_the_background_is_read_with_waits_match_and_fold(self):
        async with self.client() as client:
            line = (
                "for i in 1 2 3; do printf 'step %s\\r' $i; done; echo; echo ready; "
                "read -r x; echo done"
            )
            started = await self.call(client, "Bash", command=line, background=True, label="web")
            self.assertEqual(started["woke_by"], "poll")
            process = started["process_id"]
            ready = await self.read(client, process, match="ready\n")
            # A progress bar is one line, and the cursor counts every byte of it.
            self.assertEqual(ready["output"], "step 3\nready\n")
            raw = await self.read(client, process, fold=False)
            self.assertEqual(raw["output"], "step 1\rstep 2\rstep 3\r\nready\n")
            self.assertEqual(raw["next_cursor"], ready["next_cursor"])
            encoded = await self.read(client, process, encoding="base64", cursor=-6)
            self.assertEqual(encoded["output"], "cmVhZHkK")
            quiet = await self.read(
                client, process, wait={"until": {"quiet_ms": 20}}, timeout_ms=STEP * 1000
            )
            self.assertEqual(quiet["woke_by"], "quiet")
            await self.call(client, "ProcessInput", process_id=process, eof=True)
            ended = await self.read(client, process, wait="exit", tail_lines=1)
            self.assertEqual((ended["output"], ended["exit_code"]), ("done\n", 0))
            both = await client.call_tool(
                "ProcessOutput", {"process_ids": [process, "A" * 22], "wait": "all"}
            )
            page, failed = both.structured_content["results"]
            self.assertEqual((page["eof"], failed["error"][:9]), (True, "not_found"))

    async def test_a_repl_on_a_terminal_is_written_to(self):
        async with self.client() as client:
            repl = await self.call(client, "Bash", command=REPL, tty=True, yield_time_ms=1)
            process = repl["process_id"]
            # The prompt is an open line.
            prompt = await self.read(client, process, match="ready> ", fold=False)
            cursor = prompt["match"]["end_cursor"]
            typed = await self.call(
                client, "ProcessInput", process_id=process, data="6*7", keys=["enter"],
                cursor=cursor, yield_time_ms=STEP * 1000,
            )
            self.assertEqual((typed["accepted_bytes"], typed["woke_by"]), (4, "output"))
            answer = await self.read(client, process, match="\n42\r", cursor=cursor, fold=False)
            self.assertEqual(answer["woke_by"], "match")
            await self.call(client, "ProcessInput", process_id=process, rows=40, cols=120)
            size = "import os; print(os.get_terminal_size())"
            await self.call(client, "ProcessInput", process_id=process, data=size, keys=["enter"])
            await self.read(client, process, match="columns=120, lines=40", fold=False)
            await self.call(client, "ProcessInput", process_id=process, keys=["ctrl-d"])
            ended = await self.read(client, process, wait="exit")
            self.assertEqual(ended["exit_code"], 0)

    async def test_a_call_that_waits_tells_its_progress(self):
        async with self.client() as client:
            told = []

            async def progress(progress, total, message):
                told.append((progress, message))

            process = (await self.call(client, "Bash", command="sleep 600", background=True))[
                "process_id"
            ]
            await client.call_tool(
                "ProcessOutput",
                {"process_id": process, "wait": "exit", "timeout_ms": 2500},
                progress_callback=progress,
            )
            self.assertGreaterEqual(len(told), 1)
            self.assertEqual(told, sorted(told))
            self.assertIn("waiting for", told[0][1])

    async def test_a_cancelled_call_leaves_the_process(self):
        async with self.client() as client:
            for line in ("echo a; sleep 600", "echo b; sleep 600"):
                # In the foreground: its start is not answered when it is cancelled.
                call = self.call(client, "Bash", command=line, label=line)
                call = asyncio.ensure_future(call)
                (kept,) = await self.until("it runs", lambda: self.listed(client, line))
                call.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await call
                # Whatever would come of the cancellation has the time to come.
                process = kept["process_id"]
                page = await self.read(client, process, wait="exit", timeout_ms=500)
                self.assertEqual((page["woke_by"], page["state"]), ("timeout", "running"))
                wait = asyncio.ensure_future(self.read(client, process, wait="exit"))
                await asyncio.sleep(0)
                wait.cancel()
                (kept,) = await self.listed(client, line)
                self.assertEqual(kept["state"], "running")
                stopped = await self.call(
                    client, "ProcessStop", process_id=process, mode="kill"
                )
                self.assertEqual(stopped["state"], "killed")

    async def test_bad_arguments_are_results_that_can_be_acted_on(self):
        async with self.client() as client:
            told = await self.refused(client, "Bash", comand="ls")
            self.assertIn("unknown field `comand`, expected one of `command`", told)
            self.assertIn("`command`", await self.refused(client, "Bash"))
            told = await self.refused(client, "Bash", command="ls", yield_time_ms=700_000)
            self.assertIn("at most 600000", told)
            self.assertIn("blank", await self.refused(client, "Bash", command=" "))
            told = await self.refused(client, "Bash", command="ls", workdir="/no/such/folder")
            self.assertIn("spawn_failed", told)
            told = await self.refused(client, "ProcessOutput", process_id="x")
            self.assertIn("22 characters", told)
            told = await self.refused(client, "ProcessOutput", process_id="A" * 22)
            self.assertIn("not_found", told)
            self.assertIn("ProcessList", told)
            ended = await self.call(client, "Bash", command="true")
            told = await self.refused(
                client, "ProcessOutput", process_id=ended["process_id"], match="("
            )
            self.assertIn("match", told)
            told = await self.refused(
                client, "ProcessInput", process_id=ended["process_id"], data="x"
            )
            self.assertIn("stdin_closed", told)
            self.assertIn('`stdin: "pipe"` or `tty: true`', told)
            told = await self.refused(client, "ProcessStop", process_id=ended["process_id"])
            self.assertIn("missing field `mode`", told)
            self.assertIn("no state", await self.refused(client, "ProcessList", state="gone"))

    async def test_a_bridge_that_is_killed_finds_its_processes_again(self):
        async with self.client() as client:
            line = "echo here; sleep 600"
            kept = await self.call(client, "Bash", command=line, background=True, label="kept")
            await self.read(client, kept["process_id"], match="here\n")
            os.kill(self.bridge_pid(), signal.SIGKILL)
        async with self.client() as client:
            (found,) = await self.listed(client, "kept")
            self.assertEqual(found["process_id"], kept["process_id"])
            page = await self.read(client, found["process_id"])
            self.assertEqual((page["output"], page["state"]), ("here\n", "running"))
            await self.call(
                client, "ProcessStop", process_id=found["process_id"], mode="terminate"
            )

    async def test_a_session_that_is_left_alone_closes_by_itself(self):
        async with self.client("--idle-close", "1") as client:
            await self.call(client, "Bash", command="sleep 600", background=True, label="left")

        async def ended():
            return [record for record in self.records() if record["state"] == "terminated"]

        (record,) = await self.until("the session closes", ended)
        self.assertEqual((record["label"], record["reason"]), ("left", "runner-shutdown"))
        # Whoever comes later gets a new one, in the same file.
        async with self.client() as client:
            ended = await self.call(client, "Bash", command="true", label="new")
            listed = (await self.call(client, "ProcessList"))["processes"]
            self.assertEqual([found["process_id"] for found in listed], [ended["process_id"]])

    async def test_a_bridge_without_a_file_has_a_session_of_its_own(self):
        async with self.client() as client, self.client(keeps_session=False) as other:
            process = (await self.call(client, "Bash", command="true"))["process_id"]
            self.assertEqual((await self.call(other, "ProcessList"))["processes"], [])
            told = await self.refused(other, "ProcessOutput", process_id=process)
            self.assertIn("not_found", told)

    async def test_a_daemon_that_is_killed_is_started_again_and_tells_what_is_lost(self):
        async with self.client() as client:
            line = "echo here; sleep 600"
            process = (await self.call(client, "Bash", command=line, background=True))["process_id"]
            await self.read(client, process, match="here\n")
            os.kill(self.daemon_pid(), signal.SIGKILL)
            lost = await self.read(client, process, wait="exit")
            self.assertEqual((lost["state"], lost["output"]), ("lost_on_restore", "here\n"))
            self.assertEqual((await self.call(client, "Bash", command="true"))["exit_code"], 0)

    async def test_the_end_of_a_process_is_told_once_with_the_next_result(self):
        async with self.client() as client:
            process = (
                await self.call(client, "Bash", command="read -r x; exit 7", background=True)
            )["process_id"]
            record, output = f"procd://process/{process}", f"procd://process/{process}/output"
            async with self.watching(client, output) as updated:
                await self.call(client, "ProcessInput", process_id=process, eof=True)
                self.assertEqual(await asyncio.wait_for(updated(), STEP), output)
            ends = []
            for _ in range(2):
                result = await client.call_tool("Bash", {"command": "true"})
                ends += (result.meta or {}).get("procd/completions", [])
            told = {"process_id": process, "state": "exited", "reason": "exited"}
            self.assertEqual(ends, [told])
            contents = (await client.read_resource(record)).contents
            self.assertIn('"exit_code": 7', contents[0].text)
            uris = {str(resource.uri) for resource in (await client.list_resources()).resources}
            self.assertLessEqual({record, output}, uris)


class Initialize(Story, Bridge):
    """The handshake of the older protocol."""

    mode = "legacy"
    version = "2025-11-25"

    def client(self, *arguments, **options):
        self.updates = asyncio.Queue()

        async def heard(message):
            if getattr(message, "method", None) == "notifications/resources/updated":
                await self.updates.put(str(message.params.uri))

        return super().client(*arguments, message_handler=heard, **options)

    def watching(self, client, uri):
        test = self

        class Watching:
            async def __aenter__(self):
                await client.subscribe_resource(uri)
                return test.updates.get

            async def __aexit__(self, *_):
                await client.unsubscribe_resource(uri)

        return Watching()


class Discover(Story, Bridge):
    """The protocol without a handshake, which is discovered."""

    mode = "auto"
    version = "2026-07-28"

    def watching(self, client, uri):
        class Watching:
            async def __aenter__(self):
                self.listening = client.listen(resource_subscriptions=[uri])
                stream = await self.listening.__aenter__()

                async def updated():
                    async for event in stream:
                        return str(event.uri)

                return updated

            async def __aexit__(self, *reason):
                await self.listening.__aexit__(*reason)

        return Watching()


del Bridge

if __name__ == "__main__":
    unittest.main()
