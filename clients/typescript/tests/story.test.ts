// The ten-step story against the real daemon, whole and with its connection cut at every frame.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, LostOnRestore, Operator, Session, bytes, isLost } from "procd-client";

import { story } from "../examples/story.js";
import { Daemon, Proxy, within } from "./support.js";

const OUTPUT = "listening on port 8080\nhello\nbye\n";

test("the story runs as written", async () => {
  await using daemon = await Daemon.start();
  assert.equal(await within(story(daemon.socket)), OUTPUT);
});

for (const passes of [false, true]) {
  const where = passes ? "behind" : "before";
  test(`a connection cut ${where} any frame loses and doubles nothing`, async () => {
    await using daemon = await Daemon.start();
    const path = daemon.folder.at("proxy");
    const cuts: [string, number][] = [];
    {
      await using proxy = await Proxy.start(path, daemon.socket);
      assert.equal(await within(story(path)), OUTPUT);
      for (const [method, seen] of proxy.seen) {
        cuts.push(...Array.from({ length: seen }, (_, at): [string, number] => [method, at + 1]));
      }
      for (const method of ["process/start", "process/input", "process/stop", "export/chunk"]) {
        assert(proxy.seen.has(method), method);
      }
    }
    for (const cut of cuts) {
      await using proxy = await Proxy.start(path, daemon.socket, cut, passes);
      assert.equal(await within(story(path)), OUTPUT, `${cut}`);
      // How often the output is asked for is up to the follow.
      const isOpen = ["process/output", "reply", "export/continue"].includes(cut[0]);
      assert(proxy.hasCut || isOpen, `${cut}`);
    }
    await using operator = await Operator.attach(await Client.connect({ socket: daemon.socket }));
    const sessions = new Set<string>();
    for await (const record of operator.records()) {
      assert.equal(record.state, "terminated");
      assert(!sessions.has(record.sessionId), "one process a session");
      sessions.add(record.sessionId);
    }
  });
}

test("a completion is told once whatever is cut", async () => {
  await using daemon = await Daemon.start();
  const path = daemon.folder.at("proxy");
  const methods = ["process/start", "events/subscribe", "notifications/offer", "notifications/ack"];
  const cuts: [string, number][] = methods.flatMap((method): [string, number][] => [
    [method, 1],
    [method, 2],
  ]);
  for (let at = 1; at < 10; at++) {
    cuts.push(["reply", at]);
  }
  for (const cut of cuts) {
    for (const passes of [false, true]) {
      await using proxy = await Proxy.start(path, daemon.socket, cut, passes);
      await using session = await Session.open(await Client.connect({ socket: path }));
      const [started, told]: [string[], string[]] = [[], []];
      for (let round = 0; round < 2; round++) {
        started.push((await session.command("true").start()).id);
        for await (const completion of session.notifications()) {
          told.push(completion.processId);
          break;
        }
      }
      assert.deepEqual(told, started, `${cut} ${passes}`);
      assert(proxy.hasCut, `${cut}`);
    }
  }
});

test("a restart of the daemon gives a typed end", async () => {
  await using daemon = await Daemon.start();
  await using session = await Session.open(await Client.connect({ socket: daemon.socket }));
  const process = await session.shell("echo up; exec tail -f /dev/null").background().start();
  await within(process.waitFor("up"));
  const following = (async () => {
    let [text, state] = ["", ""];
    for await (const page of process.follow()) {
      [text, state] = [text + page.output, page.state];
    }
    return [text, state];
  })();
  const waiting = process.wait({ requireSuccess: true }).catch((error: unknown) => error);
  await daemon.end("SIGKILL");
  await daemon.start();
  assert.deepEqual(await within(following), ["up\n", "lost_on_restore"]);
  const lost = await within(waiting);
  assert(lost instanceof LostOnRestore);
  assert.equal(lost.details.processId, process.id);
  assert(isLost(await process.wait()));
  for await (const completion of session.notifications()) {
    assert.equal(completion.state, "lost_on_restore");
    break;
  }
});

test("a slow reader holds one page and is told what it missed", async () => {
  const total = 32 * 1024 * 1024;
  await using daemon = await Daemon.start();
  await using session = await Session.open(await Client.connect({ socket: daemon.socket }));
  const command = session.command("head").args(["-c", String(total), "/dev/zero"]);
  const process_ = await command
    .params({ spoolBytes: 1 << 20 })
    .background()
    .start();
  const follow = process_.follow({ encoding: "base64" });
  const first = (await within(follow.next())).value!;
  globalThis.gc?.();
  const before = process.memoryUsage();
  // Nothing is read while all of it is written.
  await within(process_.wait());
  globalThis.gc?.();
  const after = process.memoryUsage();
  const grown = after.heapUsed + after.external - before.heapUsed - before.external;
  assert(grown < 4 * 1024 * 1024, `${grown} bytes more`);
  let [got, missed] = [bytes(first).length, first.gapBytes ?? 0];
  for await (const page of follow) {
    [got, missed] = [got + bytes(page).length, missed + (page.gapBytes ?? 0)];
  }
  assert.equal(got + missed, total);
  assert(missed > total / 2);
});
