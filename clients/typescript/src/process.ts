// One process.

import type { Connection } from "./connection.js";
import {
  Disconnected,
  NoMatch,
  Nonsense,
  NotFound,
  StdinClosed,
  WaitTimeout,
  refusal,
} from "./errors.js";
import { Export } from "./export.js";
import { Follow } from "./follow.js";
import type { Link } from "./link.js";
import { isObject } from "./names.js";
import {
  hasEnded,
  type CallOptions,
  type Excerpt,
  type Found,
  type InputOptions,
  type InputReply,
  type Inspection,
  type OutputOptions,
  type Page,
  type Started,
  type Stopped,
} from "./types.js";

/** Ends that `requireSuccess` refuses; a code that is not zero is a result like any other. */
const NO_SUCCESS = ["timed_out", "interrupted", "terminated", "killed", "lost_on_restore"];
const FOLLOW_PAGE_BYTES = 256 * 1024;

/** How to follow. */
export type FollowOptions = Omit<OutputOptions, "wait" | "timeoutMs" | "requireSuccess"> &
  CallOptions;

/** A process of the daemon. Letting go of it touches nothing. */
export class Process {
  #link: Link;
  #reply: Started | undefined;

  constructor(
    link: Link,
    /** The handle. */
    readonly id: string,
    reply?: Started,
  ) {
    this.#link = link;
    this.#reply = reply;
  }

  /** The reply to its start, when it was started here: the result of a foreground command. */
  get reply(): Started {
    if (!this.#reply) {
      throw new Nonsense("this process was not started by this object");
    }
    return this.#reply;
  }

  /**
   * One page, or a wait for one. `timeoutMs` bounds the wait, also over a lost connection. Aborting the wait ends it
   * and touches nothing.
   */
  async output(options: OutputOptions & CallOptions = {}): Promise<Page> {
    const { signal, timeoutMs, ...params } = options;
    const deadline = timeoutMs === undefined ? undefined : performance.now() + timeoutMs;
    const ask = async (connection: Connection): Promise<[Page, Connection]> => {
      const left =
        deadline === undefined
          ? {}
          : { timeoutMs: Math.max(0, Math.round(deadline - performance.now())) };
      const call = { processId: this.id, ...params, ...left };
      const result = await connection.call("process/output", call, { signal, cancels: true });
      return [pageOf(result), connection];
    };
    for (;;) {
      const [page, connection] = await this.#link.repeated(ask);
      if (page.wokeBy !== "shutdown" || hasEnded(page)) {
        return page;
      }
      // The end is told by the daemon that comes after this one.
      await this.#link.after(connection, new Disconnected("the daemon shuts down"));
    }
  }

  /**
   * The output from `cursor` (0) on, as it comes, through the end. It goes on at its cursor over a lost connection. A
   * page is asked for when the one before was taken: a slow reader holds one page, and what it cannot keep up with is
   * told as a gap.
   */
  follow(options: FollowOptions = {}): Follow {
    const where = options.tailLines === undefined ? { cursor: 0 } : {};
    const params = { limitBytes: FOLLOW_PAGE_BYTES, ...where, ...options };
    return new Follow((asked) => this.output(asked), params);
  }

  /**
   * Waits for the end: state, code, and no output to speak of. Throws `WaitTimeout` when it still runs after
   * `timeoutMs`. With `requireSuccess` an end that is no success throws its error, such as `LostOnRestore`.
   */
  async wait(
    options: { timeoutMs?: number; requireSuccess?: boolean } & CallOptions = {},
  ): Promise<Page> {
    const { requireSuccess, ...rest } = options;
    const page = await this.output({ cursor: -1, limitBytes: 1, wait: "exit", ...rest });
    if (!hasEnded(page)) {
      throw new WaitTimeout(`the process is ${page.state}`);
    }
    if (requireSuccess && NO_SUCCESS.includes(page.state)) {
      const details = { processId: this.id };
      throw refusal({ code: page.state, message: `the process is ${page.state}`, details });
    }
    return page;
  }

  /**
   * Waits until the output from `cursor` (0) on matches: where and what. Throws `NoMatch` when it ends, or the time is
   * over, without.
   */
  async waitFor(
    pattern: string,
    options: { cursor?: number; timeoutMs?: number } & CallOptions = {},
  ): Promise<Excerpt> {
    const wait = { until: { match: pattern } };
    const page = await this.output({ cursor: 0, limitBytes: 1, wait, ...options });
    if (!page.match) {
      throw new NoMatch(page, page.wokeBy ?? "");
    }
    return page.match;
  }

  /**
   * Writes to its stdin, whole or not at all; 1 MiB at most. When the connection is lost under it, nobody can tell
   * whether it arrived: that throws `Disconnected` with `maybeDone`, and nothing is sent twice. With `eof`, which ends
   * stdin behind the data, it is sent again, since a pipe takes it once only.
   */
  async write(data: string | Uint8Array, options: InputOptions = {}): Promise<InputReply> {
    const bytes =
      typeof data === "string"
        ? { data }
        : { dataBase64: Buffer.from(data.buffer, data.byteOffset, data.length).toString("base64") };
    const params = { ...bytes, ...options };
    return options.eof ? this.#lastInput(params) : this.input(params);
  }

  /** Types keys into its terminal, such as `enter`, `up` or `ctrl-c`. */
  keys(...names: string[]): Promise<InputReply> {
    return this.input({ keys: names });
  }

  /** Ends its stdin, behind what waits to be written. May be repeated. */
  eof(): Promise<InputReply> {
    return this.#input({ eof: true }, true);
  }

  /** The new size of its terminal. */
  resize(rows: number, cols: number): Promise<InputReply> {
    return this.#input({ rows, cols }, true);
  }

  /** Any parameters of `process/input`. */
  input(params: InputOptions): Promise<InputReply> {
    return this.#input(params, false);
  }

  async #input(params: InputOptions, repeats: boolean): Promise<InputReply> {
    const call = { processId: this.id, ...params };
    return (await this.#link.call("process/input", call, { repeats })) as InputReply;
  }

  async #lastInput(params: InputOptions): Promise<InputReply> {
    let isAgain = false;
    const call = { processId: this.id, ...params };
    const taken = await this.#link.repeated(async (connection) => {
      try {
        return (await connection.call("process/input", call)) as InputReply;
      } catch (error) {
        if (error instanceof StdinClosed && isAgain) {
          return undefined;
        }
        isAgain ||= error instanceof Disconnected;
        throw error;
      }
    });
    if (taken) {
      return taken;
    }
    // The first attempt had arrived: its stdin is ended. Nothing but that is known of it.
    const page = await this.output({ limitBytes: 1 });
    if (hasEnded(page)) {
      throw new Disconnected("the process has ended meanwhile", true);
    }
    return { ...page, acceptedBytes: 0, pendingBytes: 0 };
  }

  /** Delivers one signal, which is no request to end: how many processes got it. */
  async signal(
    signal: string | number,
    target: "leader" | "tree" | "foreground" = "leader",
  ): Promise<number> {
    const params = { processId: this.id, signal, target };
    const result = await this.#link.call("process/signal", params, { repeats: false });
    return (result as { delivered: number }).delivered;
  }

  /** SIGINT to the tree. Answered at the end. */
  interrupt(options: { graceMs?: number } = {}): Promise<Stopped> {
    return this.#stop("interrupt", options);
  }

  /** SIGTERM to the tree, SIGKILL when the grace is over. Answered when the tree is gone. */
  stop(options: { graceMs?: number } = {}): Promise<Stopped> {
    return this.#stop("terminate", options);
  }

  /** SIGKILL to the tree. Answered when it is gone. */
  kill(): Promise<Stopped> {
    return this.#stop("kill", {});
  }

  async #stop(mode: string, options: { graceMs?: number }): Promise<Stopped> {
    const params = { processId: this.id, mode, ...options };
    return (await this.#link.call("process/stop", params)) as Stopped;
  }

  /** All that is kept, as raw bytes: chunks to iterate, or `read()`. */
  export(options: { fromCursor?: number; reason?: string } = {}): Export {
    const { fromCursor, ...rest } = options;
    return new Export(this.#link, { processId: this.id, ...rest }, fromCursor ?? 0);
  }

  /** Lines that match: `fromCursor` and `limit` say where and how many. */
  async search(
    pattern: string,
    options: { fromCursor?: number; limit?: number; reason?: string } = {},
  ): Promise<Found> {
    const params = { processId: this.id, pattern, ...options };
    return (await this.#link.call("process/search", params)) as Found;
  }

  /** Its record, and what its tree uses now. */
  async inspect(): Promise<Inspection> {
    return (await this.#link.call("process/inspect", { processId: this.id })) as Inspection;
  }

  /** Exempts its record and output from retention, or gives them back to it. */
  async pin(pinned = true): Promise<void> {
    await this.#link.call("process/pin", { processId: this.id, pinned });
  }

  /** Removes its record and output, which have to be those of an ended process. */
  async remove(): Promise<void> {
    let isAgain = false;
    await this.#link.repeated(async (connection) => {
      try {
        await connection.call("process/remove", { processId: this.id });
      } catch (error) {
        if (error instanceof NotFound && isAgain) {
          return;
        }
        isAgain ||= error instanceof Disconnected;
        throw error;
      }
    });
  }
}

/** Whether nobody knows how it ended, since the daemon ended first. */
export function isLost(page: Page): boolean {
  return page.state === "lost_on_restore";
}

function pageOf(result: unknown): Page {
  const entries = isObject(result) ? result.results : undefined;
  const entry: unknown = Array.isArray(entries) ? entries[0] : undefined;
  if (!isObject(result) || !isObject(entry)) {
    throw new Nonsense("no entry for the process asked for");
  }
  if (isObject(entry.error)) {
    throw refusal({ ...entry.error, details: { processId: entry.processId } });
  }
  if (typeof entry.state !== "string" || typeof entry.nextCursor !== "number") {
    throw new Nonsense("a page without a state or a cursor");
  }
  return { ...entry, wokeBy: result.wokeBy } as unknown as Page;
}

/** The output of a page as bytes. */
export function bytes(page: Page, encoding: "safe_text" | "base64" = "base64"): Uint8Array {
  return new Uint8Array(Buffer.from(page.output ?? "", encoding === "base64" ? "base64" : "utf8"));
}
