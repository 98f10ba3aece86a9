// Events of a session, and completion notifications of a loop.

import type { Connection, Stream } from "./connection.js";
import { Disconnected, Nonsense, ProcdError } from "./errors.js";
import type { Link } from "./link.js";
import { isObject, type Json } from "./names.js";
import type { CallOptions, EventRecord, Notification } from "./types.js";

/** Ids of notifications that a session remembers. */
const SEEN_MAX = 4096;
/** Events that are taken before they are acknowledged together. */
const UNACKNOWLEDGED_MAX = 16;

/** A bounded set of ids: the oldest go first. */
export class Seen {
  #ids = new Set<string>();
  #capacity: number;

  constructor(capacity = SEEN_MAX) {
    this.#capacity = capacity;
  }

  has(id: string): boolean {
    return this.#ids.has(id);
  }

  add(id: string): void {
    this.#ids.delete(id);
    this.#ids.add(id);
    for (const oldest of this.#ids) {
      if (this.#ids.size <= this.#capacity) {
        return;
      }
      this.#ids.delete(oldest);
    }
  }
}

/** A subscription that comes back by itself. */
abstract class Subscription<T> implements AsyncIterableIterator<T> {
  protected readonly link: Link;
  protected params: Json;
  protected stream: Stream | undefined;
  protected readonly signal: AbortSignal | undefined;
  #isClosed = false;

  constructor(link: Link, params: Json, options: CallOptions) {
    this.link = link;
    this.params = params;
    this.signal = options.signal;
  }

  protected abstract taken(): Promise<T>;
  protected begun(_result: Json): void {}

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** The next one. */
  async next(): Promise<IteratorResult<T, undefined>> {
    if (this.#isClosed) {
      return { done: true, value: undefined };
    }
    return { done: false, value: await this.taken() };
  }

  /** Ends the subscription; what leaving a `for await` does, too. */
  async return(): Promise<IteratorResult<T, undefined>> {
    await this.close();
    return { done: true, value: undefined };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Ends the subscription. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const stream = this.stream;
    this.stream = undefined;
    if (!stream || stream.connection.isClosed) {
      return;
    }
    try {
      await stream.connection.call("events/unsubscribe", { for: stream.number });
      stream.connection.forget(stream.number);
    } catch (error) {
      if (!(error instanceof ProcdError)) {
        throw error;
      }
    }
  }

  protected async subscribe(connection: Connection): Promise<Stream> {
    const stream = await connection.stream("events/subscribe", this.params, true);
    const { body } = await stream.next(this.signal);
    this.begun(isObject(body) ? body : {});
    this.stream = stream;
    return stream;
  }

  /** The parameters of the next notice of this kind. */
  protected async notice(kind: string): Promise<Json> {
    for (;;) {
      const stream = this.stream ?? (await this.link.repeated((c) => this.subscribe(c)));
      try {
        const { method, body } = await stream.next(this.signal);
        if (method === kind && isObject(body)) {
          return body;
        }
      } catch (error) {
        if (!(error instanceof Disconnected)) {
          throw error;
        }
        this.stream = undefined;
      }
    }
  }
}

/** Events, in order, each once. Over a lost connection it goes on behind the last event that was taken. */
export class Events extends Subscription<EventRecord> {
  /** Whether an event between the number asked for and the first one kept was dropped. */
  gap = false;
  #last: number | undefined;
  #unacknowledged = 0;

  /** Subscribes now, so that nothing from here on is missed. */
  static async open(link: Link, params: Json, options: CallOptions): Promise<Events> {
    const events = new Events(link, params, options);
    await link.repeated((connection) => events.subscribe(connection));
    return events;
  }

  protected override begun(result: Json): void {
    this.#unacknowledged = 0;
    this.gap ||= result.gap === true;
    // Live from here on: what comes while the connection is lost is not missed.
    this.params = { fromSeq: Number(result.lastSeq ?? 0) + 1, ...this.params };
  }

  protected override async taken(): Promise<EventRecord> {
    await this.#acknowledge();
    for (;;) {
      const record = (await this.notice("events/record")) as unknown as EventRecord;
      if (typeof record.seq !== "number" || !isObject(record.event)) {
        throw new Nonsense("an event without a number");
      }
      if (this.#last === undefined || record.seq > this.#last) {
        this.#last = record.seq;
        this.params = { ...this.params, fromSeq: record.seq + 1 };
        this.#unacknowledged += 1;
        return record;
      }
    }
  }

  async #acknowledge(): Promise<void> {
    const stream = this.stream;
    if (!stream || this.#unacknowledged === 0) {
      return;
    }
    if (stream.isEmpty || this.#unacknowledged >= UNACKNOWLEDGED_MAX) {
      this.#unacknowledged = 0;
      try {
        await stream.connection.post("events/ack", { for: stream.number, upToSeq: this.#last });
      } catch (error) {
        if (!(error instanceof Disconnected)) {
          throw error;
        }
      }
    }
  }
}

/**
 * Completions, each once. A notification is answered `accepted` when the next one is asked for, or the loop is left:
 * one that was being worked on when the client died is offered again.
 */
export class Notifications extends Subscription<Notification> {
  #seen: Seen;
  #taken: string | undefined;

  constructor(link: Link, seen: Seen, options: CallOptions) {
    super(link, { notifications: true, kinds: [] }, options);
    this.#seen = seen;
  }

  protected override async taken(): Promise<Notification> {
    await this.accept();
    for (;;) {
      const offer = await this.notice("notifications/offer");
      const found = offer.notification as Notification;
      if (!isObject(found) || typeof found.commandId !== "string") {
        throw new Nonsense("a notification without an id");
      }
      if (!this.#seen.has(found.commandId)) {
        this.#seen.add(found.commandId);
        this.#taken = found.commandId;
        return found;
      }
      await this.#answer(found.commandId, "duplicate");
    }
  }

  /** Says that the loop took the last one. It is never offered again. */
  async accept(): Promise<void> {
    if (this.#taken !== undefined) {
      await this.#answer(this.#taken, "accepted");
      this.#taken = undefined;
    }
  }

  override async close(): Promise<void> {
    await this.accept();
    await super.close();
  }

  async #answer(commandId: string, disposition: string): Promise<void> {
    await this.link.call("notifications/ack", { commandId, disposition });
  }
}
