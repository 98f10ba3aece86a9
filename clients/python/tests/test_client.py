"""What the client does by itself, against a daemon that is written by hand."""

from __future__ import annotations

import asyncio
import unittest
from pathlib import Path
from typing import Any, List

from procd_client import (
    Client,
    Credentials,
    Disconnected,
    LeaseLost,
    NoDaemon,
    NoMatch,
    Nonsense,
    NotFound,
    PlaceError,
    Refused,
    Session,
    Unsendable,
)
from procd_client.errors import BY_CODE
from procd_client.places import socket_path
from procd_client.subscriptions import Seen

from .support import ID, Scripted, ScriptedCase, page, within


async def greeted(daemon: Scripted) -> None:
    await daemon.greet()
    await daemon.opened()


async def back(daemon: Scripted) -> None:
    await daemon.greet()
    await daemon.attached()


class Calls(ScriptedCase):
    async def session(self) -> Session:
        client = await within(Client.connect(self.socket).__aenter__())
        session: Session = await within(Session.open(client).__aenter__())
        return session

    async def test_what_a_later_version_adds_is_survived(self) -> None:
        async def script(daemon: Scripted) -> None:
            await greeted(daemon)
            number, _ = await daemon.expect("process/output")
            await daemon.send({"method": "novel/notice", "params": {"for": number, "x": 1}})
            await daemon.send({"method": "novel/other", "params": [1]})
            await daemon.send({"id": 999, "result": {}})
            entry = page(0, 4, 4, "hibernated", reason="asleep", novel={"a": 1})
            await daemon.answer(number, {"results": [entry], "woke_by": "novel", "more": 1})
            number, _ = await daemon.expect("process/inspect")
            await daemon.refuse(number, "brand_new", hint=[1])

        served = await self.serve(script)
        process = (await self.session()).process(ID)
        found = await within(process.output())
        self.assertEqual((found.state, found.woke_by), ("hibernated", "novel"))
        self.assertTrue(found.has_ended)
        self.assertEqual(found.raw["novel"], {"a": 1})
        with self.assertRaises(Refused) as refused:
            await within(process.inspect())
        self.assertIs(type(refused.exception), Refused)
        self.assertEqual(refused.exception.code, "brand_new")
        self.assertEqual(refused.exception.details, {"hint": [1]})
        await within(served)

    async def test_every_code_has_a_class_of_its_own(self) -> None:
        async def script(daemon: Scripted) -> None:
            await greeted(daemon)
            for code in BY_CODE:
                number, _ = await daemon.expect("process/inspect")
                await daemon.refuse(number, code, process_id=ID)

        served = await self.serve(script)
        process = (await self.session()).process(ID)
        for kind in BY_CODE.values():
            with self.assertRaises(kind) as refused:
                await within(process.inspect())
            self.assertEqual(refused.exception.process_id, ID)
        await within(served)

    async def test_an_error_of_one_process_is_the_error_of_its_call(self) -> None:
        async def script(daemon: Scripted) -> None:
            await greeted(daemon)
            number, _ = await daemon.expect("process/output")
            entry = {"process_id": ID, "error": {"code": "not_found", "message": "no"}}
            await daemon.answer(number, {"results": [entry], "woke_by": "exit"})

        served = await self.serve(script)
        with self.assertRaises(NotFound):
            await within((await self.session()).process(ID).output())
        await within(served)

    async def test_a_cancelled_wait_is_cancelled_at_the_daemon_and_its_late_answer_ignored(
        self,
    ) -> None:
        async def script(daemon: Scripted) -> None:
            await greeted(daemon)
            number, _ = await daemon.expect("process/output")
            asked.set()
            frame = await daemon.receive()
            self.assertEqual(frame, {"method": "$/cancel", "params": {"for": number}})
            await daemon.refuse(number, "cancelled")
            number, _ = await daemon.expect("process/inspect")
            await daemon.answer(number, {"record": {"process_id": ID, "state": "running"}})

        asked = asyncio.Event()
        served = await self.serve(script)
        process = (await self.session()).process(ID)
        waiting = asyncio.create_task(process.wait())
        await within(asked.wait())
        waiting.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await waiting
        self.assertEqual((await within(process.inspect())).record.state, "running")
        await within(served)

    async def test_a_start_whose_reply_is_lost_is_made_again_under_its_key(self) -> None:
        keys = []

        async def lost(daemon: Scripted) -> None:
            await greeted(daemon)
            _, params = await daemon.expect("process/start")
            keys.append(params["request_key"])

        async def kept(daemon: Scripted) -> None:
            await back(daemon)
            number, params = await daemon.expect("process/start")
            keys.append(params["request_key"])
            self.assertEqual(params["env"], {"A": "2", "B": None})
            self.assertEqual(params["argv"], ["make", "-j2", "test"])
            await daemon.answer(number, page(0, 0, 0, origin="o", woke_by="poll"))

        served = await self.serve(lost, kept)
        session = await self.session()
        command = session.command("make").arg("-j2").arg("test").env("A", "1").env("A", "2")
        process = await within(command.env("B", None).background().start())
        self.assertEqual(process.id, ID)
        # A key that is left out, or made anew for the second start, fails here.
        self.assertEqual(len(set(keys)), 1)
        await within(served)

    async def test_input_whose_reply_is_lost_is_told_and_not_sent_again(self) -> None:
        async def lost(daemon: Scripted) -> None:
            await greeted(daemon)
            await daemon.expect("process/input")

        async def kept(daemon: Scripted) -> None:
            await back(daemon)
            number, _ = await daemon.expect("process/stop")
            await daemon.answer(number, {"process_id": ID, "state": "terminated"})

        served = await self.serve(lost, kept)
        process = (await self.session()).process(ID)
        with self.assertRaises(Disconnected) as lost_input:
            await within(process.write("x"))
        self.assertTrue(lost_input.exception.maybe_done)
        self.assertEqual((await within(process.stop())).state, "terminated")
        await within(served)

    async def test_a_lost_connection_that_does_not_come_back_is_told(self) -> None:
        served = await self.serve(greeted)
        async with Client.connect(self.socket, reconnect=0.05) as client:
            session = await within(Session.open(client))
            await within(served)
            Path(self.socket).unlink(missing_ok=True)
            with self.assertRaises(NoDaemon):
                await within(session.process(ID).wait())
            await client.close()
            with self.assertRaises(Disconnected):
                await within(session.process(ID).wait())
            with self.assertRaises(Disconnected):
                await within(session.notifications().next())

    async def test_a_wait_without_a_match_says_how_things_stand(self) -> None:
        async def script(daemon: Scripted) -> None:
            await greeted(daemon)
            number, params = await daemon.expect("process/output")
            self.assertEqual(params["wait"], {"until": {"match": "up"}})
            entry = page(0, 0, 0, "exited", exit_code=3, reason="exited")
            await daemon.answer(number, {"results": [entry], "woke_by": "exit"})

        served = await self.serve(script)
        with self.assertRaises(NoMatch) as none:
            await within((await self.session()).process(ID).wait_for("up"))
        self.assertEqual((none.exception.woke_by, none.exception.page.exit_code), ("exit", 3))
        await within(served)

    async def test_a_lease_is_lost_with_its_connection_and_said_so(self) -> None:
        async def script(daemon: Scripted) -> None:
            await greeted(daemon)
            number, params = await daemon.expect("lease/acquire")
            self.assertEqual(params["kind"], "snapshot")
            await daemon.answer(number, {"lease_id": "l"})

        served = await self.serve(script)
        session = await self.session()
        with self.assertRaises(LeaseLost):
            async with session.lease("/src", "snapshot") as lease:
                await within(lease.lost())
                self.assertTrue(lease.is_lost)
                with self.assertRaises(LeaseLost):
                    lease.check()
        await within(served)

    async def test_events_go_on_behind_the_last_one_taken(self) -> None:
        async def event(daemon: Scripted, number: int, seq: int) -> None:
            fields = {"event_id": str(seq), "kind": "started", "process_id": ID}
            record = {"for": number, "seq": seq, "event": fields}
            await daemon.send({"method": "events/record", "params": record})

        async def first(daemon: Scripted) -> None:
            await greeted(daemon)
            number, params = await daemon.expect("events/subscribe")
            self.assertEqual(params, {})
            result = {"first_kept_seq": 1, "last_seq": 4, "gap": False}
            await daemon.answer(number, result)
            await event(daemon, number, 5)
            _, acknowledged = await daemon.expect("events/ack")
            self.assertEqual(acknowledged, {"for": number, "up_to_seq": 5})

        async def second(daemon: Scripted) -> None:
            await back(daemon)
            number, params = await daemon.expect("events/subscribe")
            self.assertEqual(params, {"from_seq": 6})
            result = {"first_kept_seq": 7, "last_seq": 7, "gap": True}
            await daemon.answer(number, result)
            for seq in (5, 7):
                await event(daemon, number, seq)

        served = await self.serve(first, second)
        session = await self.session()
        async with session.events() as events:
            taken = [(await within(events.next())).seq, (await within(events.next())).seq]
            self.assertEqual((taken, events.gap), ([5, 7], True))
            await within(served)

    async def test_a_completion_that_comes_again_is_answered_duplicate_and_not_shown(self) -> None:
        async def offer(daemon: Scripted, number: int, name: str) -> None:
            fields = {"command_id": name, "process_id": ID, "state": "exited"}
            params = {"for": number, "notification": fields}
            await daemon.send({"method": "notifications/offer", "params": params})

        async def answered(daemon: Scripted, **expected: str) -> None:
            number, params = await daemon.expect("notifications/ack")
            self.assertEqual(params, expected)
            await daemon.answer(number, {})

        async def subscribed(daemon: Scripted) -> int:
            number, params = await daemon.expect("events/subscribe")
            self.assertEqual(params, {"notifications": True, "kinds": []})
            await daemon.answer(number, {"first_kept_seq": 1, "last_seq": 0, "gap": False})
            return number

        async def first(daemon: Scripted) -> None:
            await greeted(daemon)
            await offer(daemon, await subscribed(daemon), "a")
            await answered(daemon, command_id="a", disposition="accepted")

        async def second(daemon: Scripted) -> None:
            await back(daemon)
            number = await subscribed(daemon)
            await offer(daemon, number, "a")
            await answered(daemon, command_id="a", disposition="duplicate")
            await offer(daemon, number, "b")
            await answered(daemon, command_id="b", disposition="accepted")
            number, _ = await daemon.expect("events/unsubscribe")
            await daemon.answer(number, {})

        async def told() -> List[str]:
            async with session.notifications() as completions:
                return [(await completions.next()).command_id for _ in range(2)]

        served = await self.serve(first, second)
        session = await self.session()
        # Without the guard "a" is shown twice, and answered "accepted" where "duplicate" is due.
        self.assertEqual(await within(told()), ["a", "b"])
        await within(served)

    async def test_nonsense_and_what_cannot_be_sent_are_told(self) -> None:
        async def bad(daemon: Scripted) -> None:
            await greeted(daemon)
            number, _ = await daemon.expect("process/output")
            entry: Any = {**page(0, 0, 0), "next_cursor": "1"}
            await daemon.answer(number, {"results": [entry], "woke_by": "poll"})

        served = await self.serve(bad)
        process = (await self.session()).process(ID)
        with self.assertRaises(Unsendable):
            await within(process.write("\ud800"))
        with self.assertRaises(Nonsense):
            await within(process.output())
        await within(served)


class Rules(unittest.TestCase):
    def test_the_socket_is_found_by_the_rules_of_the_protocol(self) -> None:
        self.assertEqual(socket_path({"PROCD_SOCKET": "/x/s"}, 7), "/x/s")
        with self.assertRaises(PlaceError):
            socket_path({"PROCD_SOCKET": "x/s"}, 7)
        with self.assertRaises(PlaceError):
            socket_path({"PROCD_SOCKET": "/" + "a" * 107}, 7)
        nobody = 4_000_000_000
        self.assertEqual(socket_path({}, nobody), f"/tmp/procd-{nobody}/procd.sock")

    def test_the_ids_that_are_remembered_are_bounded(self) -> None:
        seen = Seen(2)
        for name in ("a", "b", "a", "c"):
            seen.add(name)
        self.assertEqual([name in seen for name in ("a", "b", "c")], [True, False, True])

    def test_credentials_hide_their_key(self) -> None:
        credentials = Credentials.random()
        self.assertNotIn(credentials.session_key, repr(credentials))
        self.assertEqual(Credentials.from_dict(credentials.to_dict()), credentials)


if __name__ == "__main__":
    unittest.main()
