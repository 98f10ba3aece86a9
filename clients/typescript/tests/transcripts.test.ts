// The recorded transcripts of the protocol, with this client as the one who calls.

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync, readdirSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { Connection, type Stream } from "../src/connection.js";
import { Disconnected, Refused } from "../src/errors.js";
import { fromWire } from "../src/names.js";
import { Folder, Scripted, within, type Json } from "./support.js";

const FOLDER = fileURLToPath(
  new URL("../../../../protocol/transcripts/v1-0.1.0/", import.meta.url),
);

/** One transcript: the daemon says what it said then, the client has to understand it. */
class Replay {
  #ends = new Map<string, { connection: Connection; daemon: Scripted }>();
  #calls = new Map<string, Stream>();
  #numbers = new Map<string, number>();

  constructor(readonly path: string) {}

  async run(lines: Json[]): Promise<void> {
    // Frames that no client sends: their connections are left out.
    const wild = lines.filter((line) => "send_text" in line || "send_length" in line);
    const leftOut = new Set(wild.map((line) => line.on ?? "a"));
    const server = createServer();
    server.listen(this.path);
    await once(server, "listening");
    const connect = async (): Promise<{ connection: Connection; daemon: Scripted }> => {
      const accepted = once(server, "connection") as Promise<[Socket]>;
      const connection = await Connection.open(this.path);
      return { connection, daemon: new Scripted((await accepted)[0]) };
    };
    try {
      for (const line of lines) {
        const on: string = line.on ?? "a";
        if ("daemon" in line) {
          await this.#closeAll();
        } else if (!leftOut.has(on)) {
          if ("sent" in line && !this.#ends.has(on)) {
            this.#ends.set(on, await connect());
          }
          await this.#step(on, line);
        }
      }
      await this.#closeAll();
    } finally {
      server.close();
    }
  }

  async #step(on: string, line: Json): Promise<void> {
    if ("sent" in line) {
      await this.#send(on, line.sent);
    } else if ("came" in line) {
      await this.#come(on, line.came);
    } else if (line.closed) {
      await this.#close(on);
    }
  }

  async #send(on: string, sent: Json): Promise<void> {
    const { connection, daemon } = this.#ends.get(on)!;
    const params = this.#renumbered(on, sent.params);
    if (!("id" in sent)) {
      connection.notify(sent.method, params);
      assert.deepEqual(await daemon.receive(), { method: sent.method, params });
      return;
    }
    const isSubscription = sent.method === "events/subscribe";
    const call = await connection.stream(sent.method, fromWire(params) as object, isSubscription);
    const seen = await daemon.expect(sent.method);
    assert.deepEqual(seen.params, params);
    this.#calls.set(`${on} ${sent.id}`, call);
    this.#numbers.set(`${on} ${sent.id}`, seen.id);
  }

  async #come(on: string, came: Json): Promise<void> {
    const { daemon } = this.#ends.get(on)!;
    if (!("id" in came)) {
      const params = this.#renumbered(on, came.params);
      daemon.send({ method: came.method, params });
      const item = await this.#calls.get(`${on} ${came.params.for}`)!.next();
      assert.deepEqual(item, { method: came.method, body: fromWire(params) });
      return;
    }
    daemon.send({ ...came, id: this.#numbers.get(`${on} ${came.id}`) });
    const answer = this.#calls.get(`${on} ${came.id}`)!.next();
    if ("result" in came) {
      assert.deepEqual(await answer, { method: "", body: fromWire(came.result) });
      return;
    }
    await assert.rejects(answer, (error) => {
      assert(error instanceof Refused);
      assert.equal(error.code, came.error.code);
      assert.equal(error.retryable, came.error.retryable);
      assert.deepEqual(error.details, fromWire(came.error.details));
      return true;
    });
  }

  async #closeAll(): Promise<void> {
    for (const on of [...this.#ends.keys()]) {
      await this.#close(on);
    }
  }

  async #close(on: string): Promise<void> {
    const { connection, daemon } = this.#ends.get(on)!;
    this.#ends.delete(on);
    daemon.socket.end();
    await connection.closed;
    await assert.rejects(connection.call("daemon/status", {}), Disconnected);
  }

  #renumbered(on: string, params: Json): Json {
    return "for" in params ? { ...params, for: this.#numbers.get(`${on} ${params.for}`) } : params;
  }
}

const files = readdirSync(FOLDER).filter((name) => name.endsWith(".jsonl"));
assert(files.length >= 12);
for (const name of files) {
  test(`the recorded transcript ${name} is understood`, async () => {
    using folder = new Folder();
    const lines = readFileSync(FOLDER + name, "utf8")
      .trimEnd()
      .split("\n");
    await within(new Replay(folder.at("sock")).run(lines.map((line) => JSON.parse(line))));
  });
}
