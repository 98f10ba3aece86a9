// The owner's side: a session and its processes. And the operator's, who looks at everything.

import { randomBytes, randomUUID } from "node:crypto";

import type { Client } from "./client.js";
import { Command } from "./command.js";
import type { Connection } from "./connection.js";
import { Disconnected, InvalidArguments, LeaseLost, Nonsense, NotFound } from "./errors.js";
import type { Link } from "./link.js";
import { Process } from "./process.js";
import { Events, Notifications, Seen } from "./subscriptions.js";
import type {
  CallOptions,
  Closed,
  ListOptions,
  Listing,
  OpenOptions,
  ProcessRecord,
  SessionInfo,
  Stopped,
} from "./types.js";

/** What it takes to come back to a session. Holds a secret. */
export interface Credentials {
  readonly sessionId: string;
  readonly loopId: string;
  readonly sessionKey: string;
}

/** New credentials. Brought along, so that a lost reply orphans nothing. */
export function randomCredentials(): Credentials {
  const sessionKey = randomBytes(32).toString("base64url");
  return { sessionId: randomUUID(), loopId: randomUUID(), sessionKey };
}

/**
 * A session, as one of its loops. Its processes live on when it is let go of. `disconnect`, or the end of an
 * `await using`, hangs up; `close` ends the session and its processes.
 */
export class Session {
  #link: Link;
  #seen = new Seen();

  private constructor(
    link: Link,
    /** What it takes to come back. Holds a secret. */
    readonly credentials: Credentials,
    /** What the daemon said when it was opened or attached. */
    readonly info: SessionInfo,
  ) {
    this.#link = link;
  }

  /** Makes a session; without `credentials` under random ids and key. */
  static async open(
    client: Client,
    options: OpenOptions & { credentials?: Credentials } = {},
  ): Promise<Session> {
    const link = withoutRole(client);
    const { credentials = randomCredentials(), ...params } = options;
    let isAgain = false;
    const info = await link.repeated(async (connection) => {
      try {
        return await opened(connection, { ...credentials, ...params }, credentials, isAgain);
      } finally {
        isAgain = true;
      }
    });
    link.takeRole({ method: "session/attach", params: credentials });
    return new Session(link, credentials, info);
  }

  /** Comes back to a session. `NotFound` for an unknown one and a wrong key alike. */
  static async attach(client: Client, credentials: Credentials): Promise<Session> {
    const link = withoutRole(client);
    const { sessionId, loopId, sessionKey } = credentials;
    const params = { sessionId, loopId, sessionKey };
    const info = (await link.call("session/attach", params)) as SessionInfo;
    link.takeRole({ method: "session/attach", params });
    return new Session(link, params, info);
  }

  /** A program to start, without a shell. */
  command(program: string): Command {
    return new Command(this.#link, { argv: [program] });
  }

  /** A text for a shell to start. */
  shell(text: string): Command {
    return new Command(this.#link, { command: text });
  }

  /** A process by its handle. Whether there is one shows with the first call. */
  process(id: string): Process {
    return new Process(this.#link, id);
  }

  /** One page of records, newest first. */
  async list(options: ListOptions = {}): Promise<Listing> {
    return (await this.#link.call("process/list", options)) as Listing;
  }

  /** The records of all pages, newest first. */
  records(options: ListOptions = {}): AsyncIterableIterator<ProcessRecord> {
    return records(this.#link, options);
  }

  /** Events from that number on, then live; without one, live from now on. */
  events(
    options: { fromSeq?: number; kinds?: string[]; scope?: "loop" | "session" } & CallOptions = {},
  ): Promise<Events> {
    const { signal, ...params } = options;
    return Events.open(this.#link, params, { signal });
  }

  /** The completion of every process of this loop, each once. */
  notifications(options: CallOptions = {}): Notifications {
    return new Notifications(this.#link, this.#seen, options);
  }

  /** A claim on a workspace for one's own work. */
  async lease(
    root: string,
    options: {
      kind?: "structured_write" | "snapshot";
      paths?: string[];
      timeoutMs?: number;
    } & CallOptions = {},
  ): Promise<Lease> {
    const { signal, ...rest } = options;
    const params = { root, kind: "structured_write", ...rest };
    return this.#link.repeated(async (connection) => {
      const result = await connection.call("lease/acquire", params, { signal, cancels: true });
      return new Lease(connection, (result as { leaseId: string }).leaseId);
    });
  }

  /** Stops all that runs in this loop, or with `scope: "session"` in the session. */
  async stopAll(
    options: { scope?: "loop" | "session"; mode?: string; graceMs?: number } = {},
  ): Promise<readonly Stopped[]> {
    const result = await this.#link.call("session/stop_all", options);
    return (result as { results: Stopped[] }).results;
  }

  /** What the daemon says of itself and of this session. */
  async status(): Promise<Record<string, unknown>> {
    return (await this.#link.call("daemon/status", {})) as Record<string, unknown>;
  }

  /** Calls any method with any parameters, once: the result in camel case. */
  call(method: string, params: object = {}, options: CallOptions = {}): Promise<unknown> {
    return this.#link.call(method, params, { ...options, repeats: false, cancels: true });
  }

  /** Ends the session and every process in it. Its data stay readable, but for `purge`. */
  async close(options: { purge?: boolean; graceMs?: number } = {}): Promise<Closed> {
    return (await this.#link.call("session/close", { scope: "session", ...options })) as Closed;
  }

  /** Hangs up for good. The session and its processes live on. */
  disconnect(): void {
    this.#link.shut();
  }

  /** Loses the connection, as an accident would: the next call comes back by itself. */
  drop(): void {
    this.#link.drop();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.disconnect();
  }
}

/** Opens a session, or attaches to the one that an attempt before has made. */
async function opened(
  connection: Connection,
  params: object,
  credentials: Credentials,
  isAgain: boolean,
): Promise<SessionInfo> {
  const attach = (): Promise<unknown> => connection.call("session/attach", credentials);
  if (isAgain) {
    try {
      return (await attach()) as SessionInfo;
    } catch (error) {
      if (!(error instanceof NotFound)) {
        throw error;
      }
    }
  }
  try {
    return (await connection.call("session/open", params)) as SessionInfo;
  } catch (error) {
    const isInUse = error instanceof InvalidArguments && error.details.field === "session_id";
    if (!isInUse || !isAgain) {
      throw error;
    }
    return (await attach()) as SessionInfo;
  }
}

/** A claim on a workspace. It ends with its release, and with the connection. */
export class Lease {
  #connection: Connection;

  constructor(
    connection: Connection,
    readonly id: string,
  ) {
    this.#connection = connection;
  }

  /** Whether the connection is gone, and the claim with it. */
  get isLost(): boolean {
    return this.#connection.isClosed;
  }

  /** Resolves when the claim is lost. */
  get lost(): Promise<void> {
    return this.#connection.closed;
  }

  /** Throws `LeaseLost` when somebody else may have it by now. */
  check(): void {
    if (this.isLost) {
      throw new LeaseLost("the connection that held the lease is gone");
    }
  }

  /** Gives it back. Throws `LeaseLost` when it was lost before. */
  async release(): Promise<void> {
    this.check();
    try {
      await this.#connection.call("lease/release", { leaseId: this.id });
    } catch (error) {
      if (error instanceof Disconnected) {
        throw new LeaseLost("the lease was lost before its release");
      }
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }
}

/** The operator, who looks at everything and owns nothing. */
export class Operator {
  #link: Link;

  private constructor(
    link: Link,
    /** What there was when it attached. */
    readonly attached: { readonly sessions: number; readonly totals: Record<string, number> },
  ) {
    this.#link = link;
  }

  /** Becomes the operator. `reason` is logged with every look at somebody's output. */
  static async attach(client: Client, reason?: string): Promise<Operator> {
    const link = withoutRole(client);
    const params = reason === undefined ? {} : { reason };
    const attached = await link.call("operator/attach", params);
    link.takeRole({ method: "operator/attach", params });
    return new Operator(link, attached as Operator["attached"]);
  }

  /** A process of any session. */
  process(id: string): Process {
    return new Process(this.#link, id);
  }

  /** The records of all sessions, or of the one named, newest first. */
  records(options: ListOptions = {}): AsyncIterableIterator<ProcessRecord> {
    return records(this.#link, options);
  }

  /** Calls any method with any parameters, once: the result in camel case. */
  call(method: string, params: object = {}, options: CallOptions = {}): Promise<unknown> {
    return this.#link.call(method, params, { ...options, repeats: false, cancels: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#link.shut();
  }
}

function withoutRole(client: Client): Link {
  if (client.link.hasRole) {
    throw new Nonsense("this client has a role already: connect another one");
  }
  return client.link;
}

async function* records(link: Link, options: ListOptions): AsyncIterableIterator<ProcessRecord> {
  for (let after = options.after; ; ) {
    const asked = after === undefined ? options : { ...options, after };
    const page = (await link.call("process/list", asked)) as Listing;
    yield* page.records;
    if (page.next === undefined) {
      return;
    }
    after = page.next;
  }
}
