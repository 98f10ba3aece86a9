// What the client does by itself, against a daemon that is written by hand, and what the documents say to type.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import {
  Client,
  Disconnected,
  LeaseLost,
  NoDaemon,
  NoMatch,
  Refused,
  Session,
  Unsendable,
  byCode,
  hasEnded,
} from "procd-client";

import {
  Daemon,
  Folder,
  ID,
  binary,
  page,
  serve,
  text,
  within,
  type Json,
  type Scripted,
} from "./support.js";

/** The root of this package, seen from where the tests are built to. */
const ROOT = new URL("../../", import.meta.url);

async function opened(folder: Folder): Promise<Session> {
  return within(Session.open(await Client.connect({ socket: folder.at("s"), reconnectMs: 100 })));
}

test("what a later version adds is survived", async () => {
  using folder = new Folder();
  const { done } = await serve(folder.at("s"), async (daemon) => {
    await daemon.opened();
    const { id } = await daemon.expect("process/output");
    daemon.send({ method: "novel/notice", params: { for: id, x: 1 } });
    daemon.send({ method: "novel/other", params: [1] });
    daemon.send({ id: 999, result: {} });
    const entry = page(0, 4, 4, { state: "hibernated", reason: "asleep", novel_field: { a: 1 } });
    daemon.answer(id, { results: [entry], woke_by: "novel" });
    daemon.refuse((await daemon.expect("process/inspect")).id, "brand_new", { hint: [1] });
  });
  const process = (await opened(folder)).process(ID);
  const found = await within(process.output());
  assert.deepEqual([found.state, found.wokeBy, hasEnded(found)], ["hibernated", "novel", true]);
  assert.deepEqual((found as Json).novelField, { a: 1 });
  const refused = await within(process.inspect().catch((error: unknown) => error));
  assert(refused instanceof Refused && refused.constructor === Refused);
  assert.deepEqual([refused.code, refused.details], ["brand_new", { hint: [1] }]);
  await done;
});

test("every code has a class of its own", async () => {
  using folder = new Folder();
  const { done } = await serve(folder.at("s"), async (daemon) => {
    await daemon.opened();
    for (const code of byCode.keys()) {
      daemon.refuse((await daemon.expect("process/inspect")).id, code, { process_id: ID });
    }
  });
  const process = (await opened(folder)).process(ID);
  for (const kind of byCode.values()) {
    const refused = await within(process.inspect().catch((error: unknown) => error));
    assert(refused instanceof kind, kind.name);
    assert.equal(refused.details.processId, ID);
  }
  assert.equal(byCode.size, 31);
  await done;
});

test("an aborted wait is cancelled at the daemon and its late answer ignored", async () => {
  using folder = new Folder();
  const abort = new AbortController();
  const { done } = await serve(folder.at("s"), async (daemon) => {
    await daemon.opened();
    const { id } = await daemon.expect("process/output");
    abort.abort();
    assert.deepEqual(await daemon.receive(), { method: "$/cancel", params: { for: id } });
    daemon.refuse(id, "cancelled");
    const { id: next } = await daemon.expect("process/inspect");
    daemon.answer(next, { record: { process_id: ID, state: "running" } });
  });
  const process = (await opened(folder)).process(ID);
  await assert.rejects(within(process.wait({ signal: abort.signal })), { name: "AbortError" });
  assert.equal((await within(process.inspect())).record.state, "running");
  await done;
});

test("a start whose reply is lost is made again under its key", async () => {
  using folder = new Folder();
  const keys = new Set<string>();
  const lost = async (daemon: Scripted): Promise<void> => {
    await daemon.opened();
    keys.add((await daemon.expect("process/start")).params.request_key);
  };
  const kept = async (daemon: Scripted): Promise<void> => {
    await daemon.attached();
    const { id, params } = await daemon.expect("process/start");
    keys.add(params.request_key);
    assert.deepEqual(params.argv, ["make", "-j2", "test"]);
    assert.deepEqual(params.env, { camelCase: "2", B_C: null });
    daemon.answer(id, page(0, 0, 0, { origin: "o", woke_by: "poll" }));
  };
  const { done } = await serve(folder.at("s"), lost, kept);
  const command = (await opened(folder)).command("make").arg("-j2").arg("test");
  const process = await within(
    command.env("camelCase", "1").env("camelCase", "2").env("B_C", null).background().start(),
  );
  assert.deepEqual([process.id, keys.size], [ID, 1]);
  await done;
});

test("input whose reply is lost is told and not sent again", async () => {
  using folder = new Folder();
  const lost = async (daemon: Scripted): Promise<void> => {
    await daemon.opened();
    await daemon.expect("process/input");
  };
  const kept = async (daemon: Scripted): Promise<void> => {
    await daemon.attached();
    const { id } = await daemon.expect("process/stop");
    daemon.answer(id, { process_id: ID, state: "terminated" });
  };
  const { done } = await serve(folder.at("s"), lost, kept);
  const process = (await opened(folder)).process(ID);
  const error = await within(process.write("x").catch((refused: unknown) => refused));
  assert(error instanceof Disconnected && error.maybeDone);
  assert.equal((await within(process.stop())).state, "terminated");
  await done;
});

test("a lost connection that does not come back is told", async () => {
  using folder = new Folder();
  const { done } = await serve(folder.at("s"), (daemon) => daemon.opened());
  const session = await opened(folder);
  await done;
  await assert.rejects(within(session.process(ID).wait()), NoDaemon);
  session.disconnect();
  await assert.rejects(within(session.process(ID).wait()), Disconnected);
  await assert.rejects(within(session.notifications().next()), Disconnected);
});

test("a wait without a match says how things stand, and half a character is not sent", async () => {
  using folder = new Folder();
  const { done } = await serve(folder.at("s"), async (daemon) => {
    await daemon.opened();
    const { id, params } = await daemon.expect("process/output");
    assert.deepEqual(params.wait, { until: { match: "up" } });
    const entry = page(0, 0, 0, { state: "exited", exit_code: 3, reason: "exited" });
    daemon.answer(id, { results: [entry], woke_by: "exit" });
  });
  const process = (await opened(folder)).process(ID);
  await assert.rejects(within(process.write("\ud800")), Unsendable);
  const none = await within(process.waitFor("up").catch((error: unknown) => error));
  assert(none instanceof NoMatch);
  assert.deepEqual([none.wokeBy, none.page.exitCode], ["exit", 3]);
  await done;
});

test("a lease is lost with its connection and said so", async () => {
  using folder = new Folder();
  const { done } = await serve(folder.at("s"), async (daemon) => {
    await daemon.opened();
    const { id, params } = await daemon.expect("lease/acquire");
    assert.equal(params.kind, "snapshot");
    daemon.answer(id, { lease_id: "l" });
  });
  const session = await opened(folder);
  const lease = await within(session.lease("/src", { kind: "snapshot" }));
  await within(lease.lost);
  assert(lease.isLost);
  assert.throws(() => lease.check(), LeaseLost);
  await assert.rejects(lease.release(), LeaseLost);
  await done;
});

test("events go on behind the last one taken", async () => {
  using folder = new Folder();
  const event = (daemon: Scripted, id: number, seq: number): void =>
    daemon.send({
      method: "events/record",
      params: { for: id, seq, event: { event_id: `${seq}`, kind: "started", process_id: ID } },
    });
  const first = async (daemon: Scripted): Promise<void> => {
    await daemon.opened();
    const { id, params } = await daemon.expect("events/subscribe");
    assert.deepEqual(params, {});
    daemon.answer(id, { first_kept_seq: 1, last_seq: 4, gap: false });
    event(daemon, id, 5);
    assert.deepEqual((await daemon.expect("events/ack")).params, { for: id, up_to_seq: 5 });
  };
  const second = async (daemon: Scripted): Promise<void> => {
    await daemon.attached();
    const { id, params } = await daemon.expect("events/subscribe");
    assert.deepEqual(params, { from_seq: 6 });
    daemon.answer(id, { first_kept_seq: 7, last_seq: 7, gap: true });
    event(daemon, id, 5);
    event(daemon, id, 7);
  };
  const { done } = await serve(folder.at("s"), first, second);
  const events = await within((await opened(folder)).events());
  const taken = [
    (await within(events.next())).value?.seq,
    (await within(events.next())).value?.seq,
  ];
  assert.deepEqual([taken, events.gap], [[5, 7], true]);
  await done;
});

test("a completion that comes again is answered duplicate and not shown", async () => {
  using folder = new Folder();
  const subscribed = async (daemon: Scripted): Promise<number> => {
    const { id, params } = await daemon.expect("events/subscribe");
    assert.deepEqual(params, { notifications: true, kinds: [] });
    daemon.answer(id, { first_kept_seq: 1, last_seq: 0, gap: false });
    return id;
  };
  const offer = (daemon: Scripted, id: number, name: string): void =>
    daemon.send({
      method: "notifications/offer",
      params: { for: id, notification: { command_id: name, process_id: ID, state: "exited" } },
    });
  const answered = async (daemon: Scripted, command_id: string, disposition: string) => {
    const { id, params } = await daemon.expect("notifications/ack");
    assert.deepEqual(params, { command_id, disposition });
    return () => daemon.answer(id, {});
  };
  const first = async (daemon: Scripted): Promise<void> => {
    await daemon.opened();
    offer(daemon, await subscribed(daemon), "a");
    (await answered(daemon, "a", "accepted"))();
  };
  const second = async (daemon: Scripted): Promise<void> => {
    await daemon.attached();
    const id = await subscribed(daemon);
    offer(daemon, id, "a");
    (await answered(daemon, "a", "duplicate"))();
    offer(daemon, id, "b");
    (await answered(daemon, "b", "accepted"))();
    daemon.answer((await daemon.expect("events/unsubscribe")).id, {});
  };
  const { done } = await serve(folder.at("s"), first, second);
  const told: string[] = [];
  for await (const completion of (await opened(folder)).notifications()) {
    told.push(completion.commandId);
    if (told.length === 2) {
      break;
    }
  }
  assert.deepEqual(told, ["a", "b"]);
  await done;
});

/** The examples of a page. */
function examples(path: string): string[] {
  const found = text(new URL(path, ROOT)).matchAll(/^```js\n(.*?)^```$/gms);
  return [...found].map((example) => example[1]!);
}

function run(daemon: Daemon, script: string): string[] {
  mkdirSync(daemon.folder.at("node_modules"), { recursive: true });
  const link = daemon.folder.at("node_modules/procd-client");
  try {
    symlinkSync(fileURLToPath(ROOT), link);
  } catch (error) {
    assert.equal((error as Json).code, "EEXIST");
  }
  const path = daemon.folder.at("example.mjs");
  writeFileSync(path, script);
  const options = { env: daemon.environment(), encoding: "utf8", timeout: 60_000 } as const;
  return execFileSync(process.execPath, [path], options).trimEnd().split("\n");
}

test("the first example of the readme runs as written", async () => {
  await using daemon = await Daemon.start();
  await daemon.end("SIGTERM");
  assert.deepEqual(run(daemon, examples("README.md")[0]!), ["hello", "exit code 3"]);
  execFileSync(binary("procctl"), ["shutdown"], { env: daemon.environment() });
});

test("every example of the page runs as written", async () => {
  await using daemon = await Daemon.start();
  const found = examples("../../docs/clients-typescript.md");
  assert(found.length >= 3);
  for (const example of found) {
    const prints = [...example.matchAll(/^\/\/ prints: (.*)$/gm)].map((line) => line[1]);
    assert.deepEqual(run(daemon, example), prints);
  }
});
