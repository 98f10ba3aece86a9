// Starting a private daemon. It makes its own POSIX session, keeps its own log, and says by one line on an inherited
// pipe whether it is ready.

import { spawn } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, isAbsolute, join } from "node:path";

import { LaunchError } from "./errors.js";
import { DAEMON_VARIABLE, SOCKET_VARIABLE } from "./places.js";

/** How long it may take: it waits for the guardian of the one before and reads what that left. */
const READY_MS = 60_000;

/**
 * What node calls a pipe is a socket, and the daemon writes to a pipe only: a shell makes one. The daemon is nobody's
 * child then, and whoever adopts it reaps it.
 */
const SCRIPT = `{ "$0" --private --ready-fd 3 3>&1 </dev/null >/dev/null 2>&1 & } | head -n 1`;

/** Starts a private daemon that serves `socket` and waits until it is ready. */
export async function privateDaemon(program: string | undefined, socket: string): Promise<void> {
  const found = program ?? findDaemon();
  const child = spawn("/bin/sh", ["-c", SCRIPT, found], {
    stdio: ["ignore", "pipe", "ignore"],
    env: { ...process.env, [SOCKET_VARIABLE]: socket },
  });
  const line = await new Promise<string>((resolve, reject) => {
    const timer = setTimeout(() => {
      child.kill();
      reject(new LaunchError(`\`${found}\` says nothing`));
    }, READY_MS);
    let said = "";
    child.stdout.setEncoding("utf8");
    child.stdout.on("data", (more: string) => (said += more));
    child.on("error", (error) => {
      clearTimeout(timer);
      reject(new LaunchError(`\`${found}\`: ${error.message}`));
    });
    child.on("close", () => {
      clearTimeout(timer);
      resolve(said.trimEnd());
    });
  });
  if (line !== "ready") {
    const ended = `\`${found}\` ended before it was ready; see its log in the state folder`;
    throw new LaunchError(line.replace(/^error: /, "") || ended);
  }
}

/** The daemon's executable: `$PROCD_DAEMON`, else `procd` on PATH. */
function findDaemon(): string {
  const named = process.env[DAEMON_VARIABLE];
  if (named) {
    return named;
  }
  const folders = (process.env.PATH ?? "").split(delimiter).filter(isAbsolute);
  const found = folders.map((folder) => join(folder, "procd")).find(isExecutable);
  if (!found) {
    throw new LaunchError(`there is no \`procd\` on PATH: set ${DAEMON_VARIABLE}`);
  }
  return found;
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
