// A connection in its role that comes back by itself: a dropped one is made anew and attached again, and what may be
// repeated is repeated.

import { setTimeout as pause } from "node:timers/promises";

import type { Connection, How } from "./connection.js";
import { Disconnected, NoDaemon, type ProcdError } from "./errors.js";

/** How often one call is repeated on connections that drop under it. */
export const REPEATS_MAX = 16;
const PAUSE_FIRST_MS = 10;
const PAUSE_LAST_MS = 500;

/** The method that gives a connection its role, and its parameters. */
export interface Role {
  method: string;
  params: object;
}

/** How a call is made over a link. */
export interface LinkHow extends How {
  /** Whether it changes nothing, or the same thing, so that it may be made again. */
  repeats?: boolean;
}

/** See the file. Made over a connection that has said hello. */
export class Link {
  #current: Connection;
  #again: () => Promise<Connection>;
  #windowMs: number;
  #role: Role | undefined;
  #connecting: Promise<Connection> | undefined;
  #isShut = false;

  constructor(connection: Connection, again: () => Promise<Connection>, windowMs: number) {
    this.#current = connection;
    this.#again = again;
    this.#windowMs = windowMs;
  }

  /** Whether the role is given, which is for life. */
  get hasRole(): boolean {
    return this.#role !== undefined;
  }

  /** What every new connection is attached with from now on. */
  takeRole(role: Role): void {
    this.#role = role;
  }

  /** Hangs up, as an accident would: the next call comes back by itself. */
  drop(): void {
    this.#current.close("dropped by this client");
  }

  /** Hangs up for good. */
  shut(): void {
    this.#isShut = true;
    this.#current.close();
  }

  /** The connection, made anew when it is gone. Of several callers one makes it. */
  async connection(): Promise<Connection> {
    if (this.#isShut) {
      throw new Disconnected("closed by this client");
    }
    if (!this.#current.isClosed) {
      return this.#current;
    }
    this.#connecting ??= this.#reconnected().finally(() => (this.#connecting = undefined));
    return this.#connecting;
  }

  async #reconnected(): Promise<Connection> {
    const deadline = performance.now() + this.#windowMs;
    for (let wait = PAUSE_FIRST_MS; ; wait = Math.min(wait * 2, PAUSE_LAST_MS)) {
      try {
        this.#current = await this.#attached();
        if (this.#isShut) {
          this.#current.close();
        }
        return this.#current;
      } catch (error) {
        // A daemon that is being restarted has no socket for a moment.
        const mayPass = error instanceof NoDaemon || error instanceof Disconnected;
        if (!mayPass || performance.now() + wait > deadline) {
          throw error;
        }
      }
      await pause(wait);
    }
  }

  async #attached(): Promise<Connection> {
    const connection = await this.#again();
    try {
      if (this.#role) {
        await connection.call(this.#role.method, this.#role.params);
      }
      return connection;
    } catch (error) {
      connection.close();
      throw error;
    }
  }

  /** Calls a method: its result in camel case. */
  async call(method: string, params: object, how: LinkHow = {}): Promise<unknown> {
    return this.repeated((connection) => connection.call(method, params, how), how.repeats ?? true);
  }

  /** Makes a call, again when the connection was lost under it. */
  async repeated<T>(call: (connection: Connection) => Promise<T>, repeats = true): Promise<T> {
    for (let left = REPEATS_MAX; ; left--) {
      const connection = await this.connection();
      try {
        return await call(connection);
      } catch (error) {
        const mayRepeat = error instanceof Disconnected && (repeats || !error.maybeDone);
        if (!mayRepeat || left <= 1) {
          throw error;
        }
      }
    }
  }

  /** Waits for the end of a connection whose daemon said that it shuts down. */
  async after(connection: Connection, error: ProcdError): Promise<void> {
    const late = new AbortController();
    const timer = pause(this.#windowMs, "late", { signal: late.signal }).catch(() => "late");
    const first = await Promise.race([connection.closed, timer]);
    late.abort();
    if (first === "late") {
      throw error;
    }
  }
}
