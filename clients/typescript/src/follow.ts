// Following the output of a process, by cursor.

import { hasEnded, type CallOptions, type OutputOptions, type Page } from "./types.js";

/** Pages of output as they come, through the end. Nothing is polled: a page is waited for. */
export class Follow implements AsyncIterableIterator<Page> {
  #output: (options: OutputOptions & CallOptions) => Promise<Page>;
  #params: OutputOptions & CallOptions;
  #hasEnded = false;

  constructor(
    output: (options: OutputOptions & CallOptions) => Promise<Page>,
    params: OutputOptions & CallOptions,
  ) {
    this.#output = output;
    this.#params = { ...params, wait: "any" };
  }

  /** Where it goes on; of a tail, or of a negative cursor, known after the first page. */
  get cursor(): number {
    return this.#params.cursor ?? 0;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** The next page. What was not returned is read again, so that an aborted wait loses nothing. */
  async next(): Promise<IteratorResult<Page, undefined>> {
    if (this.#hasEnded) {
      return { done: true, value: undefined };
    }
    const page = await this.#output(this.#params);
    // With nothing more to come from a process that has ended, that was the last page.
    const isIdle = this.#params.cursor === page.nextCursor && !page.more;
    const { tailLines: _, ...rest } = this.#params;
    this.#params = { ...rest, cursor: page.nextCursor };
    this.#hasEnded = page.eof || (isIdle && hasEnded(page));
    return { done: false, value: page };
  }
}
