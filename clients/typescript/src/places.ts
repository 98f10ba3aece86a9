// Where the daemon's socket is: the rules of PROTOCOL.md, "The socket".

import { lstatSync } from "node:fs";
import { isAbsolute, join } from "node:path";

import { PlaceError } from "./errors.js";

export const SOCKET_VARIABLE = "PROCD_SOCKET";
export const DAEMON_VARIABLE = "PROCD_DAEMON";
/** Bytes of a socket's path that the kernel takes. */
const SOCKET_PATH_BYTES_MAX = 107;

type Environment = Readonly<Record<string, string | undefined>>;

/** The socket of this user. Whether a daemon listens there is another question. */
export function socketPath(environment: Environment = process.env, uid = ownUid()): string {
  const named = environment[SOCKET_VARIABLE];
  if (named) {
    return checkedSocket(named);
  }
  for (const base of [environment.XDG_RUNTIME_DIR ?? "", `/run/user/${uid}`]) {
    if (isAbsolute(base) && looksAt(base, uid) === "private") {
      return checkedSocket(join(base, "procd", "procd.sock"));
    }
  }
  const folder = `/tmp/procd-${uid}`;
  if (looksAt(folder, uid) === "foreign") {
    throw new PlaceError(
      `the folder \`${folder}\` is not a folder of ours with mode 0700: remove it, or set ${SOCKET_VARIABLE}`,
    );
  }
  return checkedSocket(join(folder, "procd.sock"));
}

/** A socket's path as it was named: absolute, and short enough. */
export function checkedSocket(path: string): string {
  if (!isAbsolute(path)) {
    throw new PlaceError(`\`${path}\` is not an absolute path: see ${SOCKET_VARIABLE}`);
  }
  const length = Buffer.byteLength(path);
  if (length > SOCKET_PATH_BYTES_MAX) {
    throw new PlaceError(
      `the socket path \`${path}\` has ${length} bytes, and a socket's path may have ${SOCKET_PATH_BYTES_MAX} at most: set ${SOCKET_VARIABLE} to a shorter one`,
    );
  }
  return path;
}

function ownUid(): number {
  return process.geteuid?.() ?? 0;
}

/** Whether it is a folder and no symlink, of this user, and closed to everybody else. */
function looksAt(folder: string, uid: number): "private" | "foreign" | "missing" {
  const found = lstatSync(folder, { throwIfNoEntry: false });
  if (!found) {
    return "missing";
  }
  const isPrivate = found.isDirectory() && found.uid === uid && (found.mode & 0o077) === 0;
  return isPrivate ? "private" : "foreign";
}
