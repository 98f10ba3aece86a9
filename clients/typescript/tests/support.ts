// A daemon of its own for each test, a proxy that cuts, and a daemon that says what it is told.

import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import assert from "node:assert/strict";

/** Milliseconds that anything may take on a machine that is busy with other things. */
export const PATIENCE_MS = 60_000;

/** A binary under test. */
export function binary(name: string): string {
  const folder = process.env.PROCD_TEST_BINARIES;
  assert(
    folder,
    "no PROCD_TEST_BINARIES: run the tests by `cargo xtask test`, which builds the binaries and says where they are",
  );
  return join(folder, name);
}

/** A folder of the test's own. */
export class Folder {
  readonly path = mkdtempSync(join(tmpdir(), "procd-ts-"));
  at(name: string): string {
    return join(this.path, name);
  }
  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}

/** A daemon in a folder of its own. */
export class Daemon {
  readonly folder = new Folder();
  readonly socket = this.folder.at("sock");
  #child: ChildProcess | undefined;

  static async start(): Promise<Daemon> {
    const daemon = new Daemon();
    writeFileSync(daemon.folder.at("config.toml"), 'containment = "shim"\n');
    await daemon.start();
    return daemon;
  }

  /** The variables that say where everything is. */
  environment(): NodeJS.ProcessEnv {
    return {
      ...process.env,
      PROCD_SOCKET: this.socket,
      PROCD_STATE_DIR: this.folder.at("state"),
      PROCD_CONFIG: this.folder.at("config.toml"),
      PROCD_DAEMON: binary("procd"),
    };
  }

  /** Starts it, ready to serve: it says so on a pipe, which is none of node's, since those are sockets. */
  async start(): Promise<void> {
    const [program, pipe] = [binary("procd"), this.folder.at("ready")];
    rmSync(pipe, { force: true });
    assert.equal(spawnSync("mkfifo", [pipe]).status, 0);
    const reader = spawn("head", ["-n", "1", pipe], { stdio: ["ignore", "pipe", "inherit"] });
    const script = 'exec "$0" --ready-fd 3 3>"$1"';
    this.#child = spawn("/bin/sh", ["-c", script, program, pipe], {
      stdio: ["ignore", "ignore", "ignore"],
      env: this.environment(),
    });
    const [line] = await within(once(reader.stdout, "data"));
    assert.equal(String(line), "ready\n");
  }

  async end(signal: "SIGKILL" | "SIGTERM"): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child) {
      const ended = once(child, "exit");
      child.kill(signal);
      await within(ended);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.end("SIGTERM");
    this.folder[Symbol.dispose]();
  }
}

/** What the promise gives, in any time that makes sense. */
export async function within<T>(work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error("it took too long")), PATIENCE_MS);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

/** Frames of a socket, as objects. */
class Frames {
  #buffer = Buffer.alloc(0);
  constructor(readonly take: (message: Json, frame: Buffer) => void) {}
  push(chunk: Buffer): void {
    this.#buffer = Buffer.concat([this.#buffer, chunk]);
    while (this.#buffer.length >= 4 && this.#buffer.length >= 4 + this.#buffer.readUInt32BE(0)) {
      const length = 4 + this.#buffer.readUInt32BE(0);
      const frame = this.#buffer.subarray(0, length);
      this.#buffer = this.#buffer.subarray(length);
      this.take(JSON.parse(frame.subarray(4).toString()), frame);
    }
  }
}

// eslint-disable-next-line -- tests look at whatever came
export type Json = any;

function framed(message: Json): Buffer {
  const payload = Buffer.from(JSON.stringify(message));
  const head = Buffer.alloc(4);
  head.writeUInt32BE(payload.length);
  return Buffer.concat([head, payload]);
}

/**
 * Passes frames on and counts them by their method, over all connections and both ways. At the frame `cutAt`, such as
 * the second `reply`, both ends of its connection are hung up, before the frame is passed on or behind it. That happens
 * once.
 */
export class Proxy {
  readonly seen = new Map<string, number>();
  hasCut = false;
  #server: Server;
  #sockets = new Set<Socket>();

  private constructor(
    readonly path: string,
    target: string,
    readonly cutAt: [string, number],
    readonly passes: boolean,
  ) {
    this.#server = createServer((client) => this.#serve(client, connect(target)));
  }

  static async start(
    path: string,
    target: string,
    cutAt: [string, number] = ["", 0],
    passes = false,
  ): Promise<Proxy> {
    const proxy = new Proxy(path, target, cutAt, passes);
    proxy.#server.listen(path);
    await once(proxy.#server, "listening");
    return proxy;
  }

  #serve(client: Socket, daemon: Socket): void {
    for (const [from, to] of [
      [client, daemon],
      [daemon, client],
    ] as const) {
      this.#sockets.add(from);
      const frames = new Frames((message, frame) => {
        if (from.destroyed) {
          return;
        }
        const method = message.method ?? "reply";
        const count = (this.seen.get(method) ?? 0) + 1;
        this.seen.set(method, count);
        const isCut = method === this.cutAt[0] && count === this.cutAt[1];
        if (!isCut || this.passes) {
          to.write(frame);
        }
        if (isCut) {
          this.hasCut = true;
          from.destroy();
          to.end();
        }
      });
      from.on("data", (chunk) => frames.push(chunk));
      from.on("error", () => {});
      from.on("close", () => to.end());
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) {
      socket.destroy();
    }
    this.#server.close();
    await once(this.#server, "close");
  }
}

/** The daemon's end of one connection, which a test writes by hand. */
export class Scripted {
  #frames: Json[] = [];
  #wake: (() => void) | undefined;

  constructor(readonly socket: Socket) {
    const frames = new Frames((message) => {
      this.#frames.push(message);
      this.#wake?.();
    });
    socket.on("data", (chunk) => frames.push(chunk));
    socket.on("error", () => {});
  }

  /** The next frame of the client. */
  async receive(): Promise<Json> {
    while (this.#frames.length === 0) {
      await within(new Promise<void>((resolve) => (this.#wake = resolve)));
    }
    return this.#frames.shift();
  }

  /** The next frame, which has to be a request of this method. */
  async expect(method: string): Promise<{ id: number; params: Json }> {
    const frame = await this.receive();
    assert.equal(frame.method, method, JSON.stringify(frame));
    return frame;
  }

  send(message: Json): void {
    this.socket.write(framed(message));
  }

  answer(id: number, result: Json): void {
    this.send({ id, result });
  }

  refuse(id: number | null, code: string, details: Json = {}): void {
    this.send({ id, error: { code, message: "no", retryable: false, details } });
  }

  /** Answers the handshake, with words that nobody knows. */
  async greet(): Promise<void> {
    const { id, params } = await this.expect("hello");
    assert.deepEqual(params.versions, [1]);
    this.answer(id, { version: 1, server: { name: "procd", version: "9" }, novel: { deep: [1] } });
  }

  /** Answers the handshake and `session/open`. */
  async opened(): Promise<void> {
    await this.greet();
    const { id, params } = await this.expect("session/open");
    this.answer(id, { session_id: params.session_id, loop_id: params.loop_id, free: {} });
  }

  /** Answers the handshake and `session/attach`. */
  async attached(): Promise<void> {
    await this.greet();
    const { id, params } = await this.expect("session/attach");
    this.answer(id, { session_id: params.session_id, loop_id: params.loop_id, state: "open" });
  }
}

type Script = (daemon: Scripted) => Promise<void>;

/** Serves the scripts in their order, one a connection: `done` resolves with the last one, or fails with it. */
export async function serve(path: string, ...scripts: Script[]): Promise<{ done: Promise<void> }> {
  const waiting: Socket[] = [];
  let wake: (() => void) | undefined;
  const server = createServer((socket) => {
    waiting.push(socket);
    wake?.();
  });
  server.listen(path);
  await once(server, "listening");
  const run = async (): Promise<void> => {
    try {
      for (const script of scripts) {
        while (waiting.length === 0) {
          await new Promise<void>((resolve) => (wake = resolve));
        }
        const socket = waiting.shift()!;
        try {
          await script(new Scripted(socket));
        } finally {
          socket.end();
        }
      }
    } finally {
      server.close();
    }
  };
  return { done: run() };
}

export const ID = "AAAAAAAAAAAAAAAAAAAAAA";

/** An entry of `process/output`. */
export function page(start: number, end: number, total: number, more: Json = {}): Json {
  const state = more.state ?? "running";
  return {
    process_id: ID,
    state,
    start_cursor: start,
    from_cursor: start,
    next_cursor: end,
    total_bytes: total,
    retained_from: 0,
    gap: false,
    more: end < total,
    eof: state !== "running" && end === total,
    output: "x".repeat(end - start),
    artifact: { id: ID, encoding: "base64", start_cursor: start, end_cursor: end },
    ...more,
  };
}

/** The text of a file of this package. */
export function text(url: URL): string {
  return readFileSync(url, "utf8");
}
