// One connection: concurrent calls by id. Frames are a length of four bytes, big-endian, and one JSON object. Whatever
// the daemon says that is not known here is ignored.

import { connect, type Socket } from "node:net";

import { Disconnected, NoDaemon, Nonsense, ProcdError, Unsendable, refusal } from "./errors.js";
import { fromWire, isObject, toWire, type Json } from "./names.js";

const FRAME_BYTES_MAX = 8 * 1024 * 1024;
const REQUESTS_IN_FLIGHT_MAX = 256;
/** Far beyond what the daemon's windows let it send: more is nonsense, and closes. */
const NOTICES_QUEUED_MAX = 512;

/** A notice with its method, or the reply with an empty one. */
export interface Item {
  method: string;
  body: unknown;
}

interface Waiter {
  take(item: Item): void;
  fail(error: ProcdError): void;
  /** Whether the id stays taken behind the reply. */
  readonly isSubscription: boolean;
}

/** Nobody waits for this answer any more. */
const NOBODY: Waiter = { take: () => {}, fail: () => {}, isSubscription: false };

/** How a call is made. */
export interface How {
  signal?: AbortSignal | undefined;
  /** Whether an abort sends `$/cancel`; otherwise the request goes on and its answer is thrown away. */
  cancels?: boolean;
}

/** A connection to the daemon. Ended once, by whoever ends it, with one error for all. */
export class Connection {
  #socket: Socket;
  #nextId = 1;
  #waiters = new Map<number, Waiter>();
  #chunks: Buffer[] = [];
  #buffered = 0;
  #slots: (() => void)[] = [];
  #error: ProcdError | undefined;
  /** Resolves when the connection is gone. */
  readonly closed: Promise<void>;
  #setClosed!: () => void;

  private constructor(socket: Socket) {
    this.#socket = socket;
    this.closed = new Promise((resolve) => (this.#setClosed = resolve));
    socket.on("data", (chunk: Buffer) => this.#take(chunk));
    socket.on("error", (error) => this.#end(new Disconnected(error.message, true)));
    socket.on("close", () => this.#end(new Disconnected("the daemon has closed it", true)));
  }

  /** Connects, and says nothing yet. */
  static open(path: string): Promise<Connection> {
    return new Promise((resolve, reject) => {
      const socket = connect(path);
      const failed = (error: Error): void => reject(new NoDaemon(path, error));
      socket.once("error", failed);
      socket.once("connect", () => {
        socket.off("error", failed);
        resolve(new Connection(socket));
      });
    });
  }

  get isClosed(): boolean {
    return this.#error !== undefined;
  }

  /** Ends the connection. Everything that waits for an answer is told so. */
  close(why = "closed by this client"): void {
    this.#end(new Disconnected(why, true));
  }

  /** Calls a method: its result in camel case. */
  async call(method: string, params: object, how: How = {}): Promise<unknown> {
    how.signal?.throwIfAborted();
    let onAbort: (() => void) | undefined;
    try {
      return await new Promise((resolve, reject) => {
        const waiter = {
          take: (item: Item) => resolve(item.body),
          fail: reject,
          isSubscription: false,
        };
        let number: number | undefined;
        onAbort = () => {
          reject(how.signal?.reason);
          if (number !== undefined && this.#waiters.has(number)) {
            this.#waiters.set(number, NOBODY);
            if (how.cancels) {
              this.notify("$/cancel", { for: number });
            }
          }
        };
        how.signal?.addEventListener("abort", onAbort);
        this.#send(method, params, waiter, how.signal).then((sent) => (number = sent), reject);
      });
    } finally {
      if (onAbort) {
        how.signal?.removeEventListener("abort", onAbort);
      }
    }
  }

  /** Sends a request whose notices are wanted, too. */
  async stream(method: string, params: object, isSubscription = false): Promise<Stream> {
    const stream = new Stream(this, isSubscription);
    stream.number = await this.#send(method, params, stream);
    return stream;
  }

  /** Sends a request whose answer nobody waits for. */
  async post(method: string, params: object): Promise<void> {
    await this.#send(method, params, NOBODY);
  }

  /** Sends a notice. It is small, and waits for nobody. */
  notify(method: string, params: object): void {
    if (!this.isClosed) {
      this.#socket.write(frame({ method, params }));
    }
  }

  /** Frees the id of a request that has ended. */
  forget(number: number): void {
    if (this.#waiters.delete(number)) {
      this.#slots.shift()?.();
    }
  }

  async #send(
    method: string,
    params: object,
    waiter: Waiter,
    signal?: AbortSignal,
  ): Promise<number> {
    const number = this.#nextId++;
    const bytes = frame({ id: number, method, params: toWire(params) });
    while (this.#waiters.size >= REQUESTS_IN_FLIGHT_MAX && !this.isClosed) {
      await new Promise<void>((resolve) => this.#slots.push(resolve));
    }
    if (this.#error) {
      throw new Disconnected(this.#error.message, false);
    }
    signal?.throwIfAborted();
    this.#waiters.set(number, waiter);
    if (!this.#socket.write(bytes)) {
      const drained = new Promise<void>((resolve) => this.#socket.once("drain", resolve));
      await Promise.race([drained, this.closed]);
    }
    return number;
  }

  #take(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#buffered += chunk.length;
    try {
      for (let payload = this.#frame(); payload && !this.isClosed; payload = this.#frame()) {
        this.#message(JSON.parse(payload.toString("utf8")));
      }
    } catch (error) {
      this.#end(error instanceof ProcdError ? error : new Nonsense(`no json: ${error}`));
    }
  }

  /** The next whole frame of what came. */
  #frame(): Buffer | undefined {
    if (this.#buffered < 4) {
      return undefined;
    }
    if ((this.#chunks[0]?.length ?? 0) < 4) {
      this.#chunks = [Buffer.concat(this.#chunks)];
    }
    const length = this.#chunks[0]!.readUInt32BE(0);
    if (length < 1 || length > FRAME_BYTES_MAX) {
      throw new Nonsense(`a frame of ${length} bytes`);
    }
    if (this.#buffered < 4 + length) {
      return undefined;
    }
    const whole = this.#chunks.length === 1 ? this.#chunks[0]! : Buffer.concat(this.#chunks);
    const rest = whole.subarray(4 + length);
    this.#chunks = rest.length > 0 ? [rest] : [];
    this.#buffered = rest.length;
    return whole.subarray(4, 4 + length);
  }

  #message(message: unknown): void {
    if (!isObject(message)) {
      throw new Nonsense("a frame that is no object");
    }
    if ("method" in message) {
      const owner = isObject(message.params) ? message.params.for : undefined;
      const waiter = typeof owner === "number" ? this.#waiters.get(owner) : undefined;
      if (waiter instanceof Stream) {
        waiter.take({ method: String(message.method), body: fromWire(message.params) });
      }
      return;
    }
    const error = isObject(message.error) ? refusal(fromWire(message.error) as Json) : undefined;
    if (message.id === null && error) {
      // Not about a request that could be told: the daemon is about to hang up.
      throw error;
    }
    const number = message.id as number;
    const waiter = this.#waiters.get(number);
    if (!waiter) {
      return;
    }
    if (error) {
      waiter.fail(error);
    } else {
      waiter.take({ method: "", body: fromWire(message.result) });
    }
    if (error || !waiter.isSubscription) {
      this.forget(number);
    }
  }

  #end(error: ProcdError): void {
    if (this.#error) {
      return;
    }
    this.#error = error;
    this.#socket.destroy();
    for (const [number, waiter] of [...this.#waiters]) {
      waiter.fail(error);
      this.forget(number);
    }
    for (const resolve of this.#slots.splice(0)) {
      resolve();
    }
    this.#setClosed();
  }
}

/** A request with notices. The daemon's windows bound what waits here. */
export class Stream implements Waiter {
  number = 0;
  #items: Item[] = [];
  #error: ProcdError | undefined;
  #wake: (() => void) | undefined;

  constructor(
    readonly connection: Connection,
    readonly isSubscription: boolean,
  ) {}

  /** Whether nothing has come that was not taken. */
  get isEmpty(): boolean {
    return this.#items.length === 0;
  }

  take(item: Item): void {
    if (this.#items.length >= NOTICES_QUEUED_MAX) {
      throw new Nonsense("more notices than were asked for");
    }
    this.#items.push(item);
    this.#wake?.();
  }

  fail(error: ProcdError): void {
    this.#error = error;
    this.#wake?.();
  }

  /** What came next. Throws the refusal of the request, or what ended the connection. */
  async next(signal?: AbortSignal): Promise<Item> {
    while (this.#items.length === 0 && !this.#error) {
      signal?.throwIfAborted();
      let wake = (): void => {};
      await new Promise<void>((resolve) => {
        this.#wake = wake = () => resolve();
        signal?.addEventListener("abort", wake);
      });
      signal?.removeEventListener("abort", wake);
    }
    const item = this.#items.shift();
    if (item) {
      return item;
    }
    throw this.#error;
  }
}

function frame(message: Json): Buffer {
  const text = JSON.stringify(message);
  // Half a pair is all that is written as an escape of this kind.
  if (/(?<!\\)(?:\\\\)*\\u[dD][89a-fA-F]/.test(text)) {
    throw new Unsendable("the request holds half a character");
  }
  const payload = Buffer.from(text);
  if (payload.length > FRAME_BYTES_MAX) {
    throw new Unsendable(
      `a request of ${payload.length} bytes, over the ${FRAME_BYTES_MAX} allowed`,
    );
  }
  const head = Buffer.alloc(4);
  head.writeUInt32BE(payload.length);
  return Buffer.concat([head, payload]);
}
