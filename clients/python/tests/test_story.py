"""The ten-step story against the real daemon, whole and with its connection cut at every frame."""

from __future__ import annotations

import asyncio
import tracemalloc
import unittest

from examples.story import story
from procd_client import Client, LostOnRestore, Session

from .support import DaemonCase, Proxy, within

OUTPUT = "listening on port 8080\nhello\nbye\n"


class Story(DaemonCase):
    async def test_the_story_runs_as_written(self) -> None:
        self.assertEqual(await within(story(self.daemon.socket)), OUTPUT)

    async def cut_at_every_frame(self, passes: bool) -> None:
        async with Proxy(self.path("proxy"), self.daemon.socket) as proxy:
            self.assertEqual(await within(story(proxy.path)), OUTPUT)
        for method in ("process/start", "process/input", "process/stop", "export/chunk"):
            self.assertIn(method, proxy.seen)
        cuts = [(method, at + 1) for method, seen in proxy.seen.items() for at in range(seen)]
        for cut in cuts:
            async with Proxy(self.path("proxy"), self.daemon.socket, cut, passes) as proxy:
                with self.subTest(cut=cut, passes=passes):
                    self.assertEqual(await within(story(proxy.path)), OUTPUT)
                    # How often the output is asked for is up to the follow.
                    is_open = cut[0] in ("process/output", "reply", "export/continue")
                    self.assertTrue(proxy.has_cut or is_open)
        await self.assert_nothing_is_doubled()

    async def assert_nothing_is_doubled(self) -> None:
        """Each session has one process, and nothing that it was not told."""
        async with Client.connect(self.daemon.socket) as client:
            await client.call("operator/attach", {"reason": "test"})
            listing = await client.call("process/list", {"limit": 1000})
        records = listing["records"]
        self.assertEqual({record["state"] for record in records}, {"terminated"})
        sessions = [record["session_id"] for record in records]
        self.assertEqual(len(sessions), len(set(sessions)))

    async def test_a_connection_cut_before_any_frame_loses_and_doubles_nothing(self) -> None:
        await self.cut_at_every_frame(passes=False)

    async def test_a_connection_cut_behind_any_frame_loses_and_doubles_nothing(self) -> None:
        await self.cut_at_every_frame(passes=True)


class Completion(DaemonCase):
    async def test_a_completion_is_told_once_whatever_is_cut(self) -> None:
        methods = ("process/start", "events/subscribe", "notifications/offer", "notifications/ack")
        cuts = [(method, at) for method in methods for at in (1, 2)]
        cuts += [("reply", at) for at in range(1, 10)]
        for cut, passes in ((cut, passes) for cut in cuts for passes in (False, True)):
            proxy = Proxy(self.path("proxy"), self.daemon.socket, cut, passes)
            async with proxy, Client.connect(proxy.path) as client:
                session = await Session.open(client)
                processes, told = [], []
                for _ in range(2):
                    processes.append((await session.command("true").start()).id)
                    async with session.notifications() as completions:
                        told.append((await within(completions.next())).process_id)
                self.assertEqual(told, processes, (cut, passes))
            self.assertTrue(proxy.has_cut, (cut, passes))


class Restart(DaemonCase):
    async def test_a_restart_of_the_daemon_gives_a_typed_end(self) -> None:
        async with Client.connect(self.daemon.socket) as client:
            session = await Session.open(client)
            process = await session.shell("echo up; exec tail -f /dev/null").background().start()
            await within(process.wait_for("up"))
            following = asyncio.create_task(self.last_state(process.follow()))
            waiting = asyncio.create_task(process.wait(require_success=True))
            self.daemon.kill()
            self.daemon.start()
            self.assertEqual(await within(following), ("up\n", "lost_on_restore"))
            with self.assertRaises(LostOnRestore) as lost:
                await within(waiting)
            self.assertEqual(lost.exception.process_id, process.id)
            self.assertTrue((await process.wait()).is_lost)
            async with session.notifications() as completions:
                self.assertEqual((await within(completions.next())).state, "lost_on_restore")

    async def last_state(self, follow: object) -> tuple[str, str]:
        text, state = "", ""
        async for page in follow:  # type: ignore[attr-defined]
            text, state = text + page.output, page.state
        return text, state


class SlowConsumer(DaemonCase):
    async def test_a_slow_reader_holds_one_page_and_is_told_what_it_missed(self) -> None:
        total = 32 * 1024 * 1024
        async with Client.connect(self.daemon.socket) as client:
            session = await Session.open(client)
            command = session.command("head").args(["-c", str(total), "/dev/zero"])
            process = await command.params(spool_bytes=1 << 20).background().start()
            follow = process.follow(encoding="base64")
            tracemalloc.start()
            try:
                first = await within(follow.__anext__())
                # Nothing is read while all of it is written.
                await within(process.wait())
                got, missed = len(first.data), first.gap_bytes or 0
                async for page in follow:
                    got, missed = got + len(page.data), missed + (page.gap_bytes or 0)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
        self.assertEqual(got + missed, total)
        self.assertGreater(missed, total // 2)
        self.assertLess(peak, 4 * 1024 * 1024)


if __name__ == "__main__":
    unittest.main()
