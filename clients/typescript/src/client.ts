// Finding the daemon, starting a private one when asked to, and the handshake.

import { Connection } from "./connection.js";
import { Disconnected, NoDaemon, Nonsense } from "./errors.js";
import { privateDaemon } from "./launch.js";
import { Link } from "./link.js";
import { isObject } from "./names.js";
import { checkedSocket, socketPath } from "./places.js";
import type { CallOptions, Hello } from "./types.js";

const VERSION = "0.1.0";
const PROTOCOL_VERSIONS = [1];
const FEATURES = ["notifications"];
const RECONNECT_MS = 10_000;
const HELLO_ATTEMPTS = 3;

/** How to connect. */
export interface ConnectOptions {
  /** In place of the socket that the environment names. */
  socket?: string | undefined;
  /** Starts a private daemon when none answers. */
  privateDaemon?: boolean;
  /** Its executable, in place of `$PROCD_DAEMON` and the one on PATH. */
  daemon?: string;
  /** Who connects. */
  name?: string;
  version?: string;
  /** For how long a lost connection is tried again; 10 s. */
  reconnectMs?: number;
}

/**
 * A connection that has said hello and has no role yet. It gets one for life by `Session.open`, `Session.attach` or
 * `Operator.attach`.
 */
export class Client {
  private constructor(
    /** The connection, as it comes back by itself. */
    readonly link: Link,
    /** What the daemon said of itself. */
    readonly hello: Hello,
  ) {}

  /** Connects to the daemon of this user and says hello. */
  static async connect(options: ConnectOptions = {}): Promise<Client> {
    const path = options.socket === undefined ? socketPath() : checkedSocket(options.socket);
    const name = options.name ?? "procd-client-typescript";
    const params = {
      client: { name, version: options.version ?? VERSION },
      versions: PROTOCOL_VERSIONS,
      features: FEATURES,
    };
    const again = async (): Promise<Connection> => (await greeted(path, params)).connection;
    let first: Greeted;
    try {
      first = await greeted(path, params);
    } catch (error) {
      const isMissing = error instanceof NoDaemon || error instanceof Disconnected;
      if (!isMissing || !options.privateDaemon) {
        throw error;
      }
      first = await launched(path, params, options.daemon);
    }
    const link = new Link(first.connection, again, options.reconnectMs ?? RECONNECT_MS);
    return new Client(link, first.hello);
  }

  /** Calls any method with any parameters, once: the result in camel case. */
  call(method: string, params: object = {}, options: CallOptions = {}): Promise<unknown> {
    return this.link.call(method, params, { ...options, repeats: false, cancels: true });
  }

  /** Hangs up. Processes do not depend on it. */
  close(): void {
    this.link.shut();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}

interface Greeted {
  connection: Connection;
  hello: Hello;
}

/** A connection that has said hello. One that is lost meanwhile is tried again. */
async function greeted(path: string, params: object): Promise<Greeted> {
  for (let left = HELLO_ATTEMPTS; ; left--) {
    const connection = await Connection.open(path);
    try {
      const hello = await connection.call("hello", params);
      if (!isObject(hello) || !isObject(hello.server)) {
        throw new Nonsense("a hello without a server");
      }
      return { connection, hello: hello as unknown as Hello };
    } catch (error) {
      connection.close();
      if (!(error instanceof Disconnected) || left <= 1) {
        throw error;
      }
    }
  }
}

/** Starts a private daemon. Of several that start at once one wins, and all use it. */
async function launched(
  path: string,
  params: object,
  daemon: string | undefined,
): Promise<Greeted> {
  let refused: unknown;
  try {
    await privateDaemon(daemon, path);
  } catch (error) {
    refused = error;
  }
  try {
    return await greeted(path, params);
  } catch (error) {
    throw error instanceof NoDaemon && refused ? refused : error;
  }
}
