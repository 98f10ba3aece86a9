// A command that is put together and then started.

import { randomUUID } from "node:crypto";

import type { Link } from "./link.js";
import { Process } from "./process.js";
import type { CallOptions, StartOptions, Started } from "./types.js";

/**
 * A command to start. Each call gives another one; nothing runs before `start`. What is not said is as the daemon has
 * it: wait for the end, no deadline, stdin from /dev/null.
 */
export class Command {
  #link: Link;
  #params: StartOptions;

  constructor(link: Link, params: StartOptions) {
    this.#link = link;
    this.#params = params;
  }

  /** Any parameters of `process/start`. */
  params(params: StartOptions): Command {
    return new Command(this.#link, { ...this.#params, ...params });
  }

  /** One argument more. A shell's text takes none. */
  arg(word: string): Command {
    return this.args([word]);
  }

  /** More arguments. */
  args(words: Iterable<string>): Command {
    return this.params({ argv: [...(this.#params.argv ?? []), ...words] });
  }

  /** The working folder. */
  cwd(folder: string): Command {
    return this.params({ cwd: folder });
  }

  /** Sets a variable; `null` removes it. */
  env(name: string, value: string | null): Command {
    return this.params({ env: { ...this.#params.env, [name]: value } });
  }

  /** Where stdin comes from. */
  stdin(kind: "pipe" | "null"): Command {
    return this.params({ stdin: kind });
  }

  /** A pseudo-terminal in place of pipes. */
  tty(rows = 24, cols = 80): Command {
    return this.params({ tty: true, rows, cols });
  }

  /** One pipe for stdout and stderr: their order is exact. */
  mergeStreams(): Command {
    return this.params({ mergeStreams: true });
  }

  /** Answered as soon as it runs. */
  background(): Command {
    return this.params({ background: true });
  }

  /** Answered after so long at the latest; it runs on. */
  yieldTime(ms: number): Command {
    return this.params({ yieldTimeMs: ms });
  }

  /** The deadline of the process, from its spawn. */
  timeout(ms: number): Command {
    return this.params({ timeoutMs: ms });
  }

  /** How long it may wait for slots, bytes and workspace. */
  queueTimeout(ms: number): Command {
    return this.params({ queueTimeoutMs: ms });
  }

  /** What it is called, at most 128 characters: finds it again. */
  label(text: string): Command {
    return this.params({ label: text });
  }

  /** The key under which the start is the same start; without one it gets a random one. */
  requestKey(key: string): Command {
    return this.params({ requestKey: key });
  }

  /** Claims a workspace; `paths` go with `scoped_write`. */
  workspace(claim: NonNullable<StartOptions["workspace"]>): Command {
    return this.params({ workspace: claim });
  }

  /**
   * Starts it. A start whose connection is lost is made again under its key, so that there is one process. Aborting
   * this before it is answered stops the process; nothing else of a client does.
   */
  async start(options: CallOptions = {}): Promise<Process> {
    const params = { requestKey: randomUUID(), ...this.#params };
    const how = { ...options, cancels: true };
    const reply = (await this.#link.call("process/start", params, how)) as Started;
    return new Process(this.#link, reply.processId, reply);
  }

  /** What a start would be (`dry_run`); nothing is started. */
  async plan(): Promise<Record<string, unknown>> {
    const reply = await this.#link.call("process/start", { ...this.#params, dryRun: true });
    return (reply as { plan: Record<string, unknown> }).plan;
  }
}
