// The retained bytes of a process, in chunks.

import { createHash, type Hash } from "node:crypto";

import type { Stream } from "./connection.js";
import { Disconnected, Nonsense } from "./errors.js";
import { REPEATS_MAX, type Link } from "./link.js";
import type { Exported } from "./types.js";

/**
 * Chunks of raw bytes. The next one is asked for when one was taken: it holds four at most. Over a lost connection it
 * goes on behind the last chunk. The daemon's SHA-256 of what it sent is compared with what came.
 */
export class Export implements AsyncIterableIterator<Uint8Array> {
  /** Ranges that are not kept any more, as far as the export has come. */
  readonly gaps: { readonly from: number; readonly to: number }[] = [];
  /** What was sent, of all parts together, once it is over. */
  result: Exported | undefined;

  #link: Link;
  #params: object;
  #from: number;
  #cursor: number;
  #stream: Stream | undefined;
  #part: Hash = createHash("sha256");
  #whole: Hash = createHash("sha256");
  #bytes = 0;
  #taken = 0;

  constructor(link: Link, params: object, fromCursor: number) {
    this.#link = link;
    this.#params = params;
    this.#from = fromCursor;
    this.#cursor = fromCursor;
  }

  /** All chunks together. */
  async read(): Promise<Uint8Array> {
    const chunks: Uint8Array[] = [];
    for await (const chunk of this) {
      chunks.push(chunk);
    }
    return new Uint8Array(Buffer.concat(chunks));
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    for (let left = REPEATS_MAX; !this.result; left--) {
      try {
        const chunk = await this.#next();
        if (chunk) {
          return { done: false, value: chunk };
        }
      } catch (error) {
        this.#stream = undefined;
        if (!(error instanceof Disconnected) || left <= 1) {
          throw error;
        }
      }
    }
    return { done: true, value: undefined };
  }

  async #next(): Promise<Uint8Array | undefined> {
    const stream = this.#stream ?? (await this.#begin());
    if (this.#taken > 0 && stream.isEmpty) {
      stream.connection.notify("export/continue", { for: stream.number, chunks: this.#taken });
      this.#taken = 0;
    }
    for (;;) {
      const { method, body } = await stream.next();
      if (method === "export/chunk") {
        this.#taken += 1;
        return this.#take(body as { cursor: number; dataBase64: string });
      }
      if (method === "export/gap") {
        const gap = body as { from: number; to: number };
        this.gaps.push({ from: gap.from, to: gap.to });
        this.#cursor = gap.to;
      } else if (method === "") {
        this.#finish(body as Exported);
        return undefined;
      }
    }
  }

  async #begin(): Promise<Stream> {
    const connection = await this.#link.connection();
    const params = { ...this.#params, fromCursor: this.#cursor };
    this.#stream = await connection.stream("process/export", params);
    this.#part = createHash("sha256");
    this.#taken = 0;
    return this.#stream;
  }

  #take(body: { cursor: number; dataBase64: string }): Uint8Array {
    const chunk = Buffer.from(body.dataBase64, "base64");
    if (body.cursor !== this.#cursor) {
      throw new Nonsense(`a chunk at ${body.cursor}, not at ${this.#cursor}`);
    }
    this.#part.update(chunk);
    this.#whole.update(chunk);
    this.#cursor += chunk.length;
    this.#bytes += chunk.length;
    return new Uint8Array(chunk);
  }

  #finish(last: Exported): void {
    if (last.sha256 !== this.#part.digest("hex")) {
      throw new Nonsense("an export whose checksum is another");
    }
    this.result = {
      fromCursor: this.#from,
      endCursor: last.endCursor,
      bytes: this.#bytes,
      gapBytes: this.gaps.reduce((sum, { from, to }) => sum + to - from, 0),
      sha256: this.#whole.digest("hex"),
    };
  }
}
