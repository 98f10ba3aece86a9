// What can go wrong, by what the caller can do. A refusal of the daemon is a `Refused`, of the class that its code
// names; a code that this version does not know is a plain `Refused`.

import type { Page } from "./types.js";

/** The base of everything that this package throws by itself. */
export class ProcdError extends Error {
  override get name(): string {
    return this.constructor.name;
  }
}

/** There is no place for the socket. */
export class PlaceError extends ProcdError {}

/** Nobody listens: start a daemon, or ask for a private one. */
export class NoDaemon extends ProcdError {
  constructor(
    readonly path: string,
    cause: unknown,
  ) {
    super(`no daemon answers at \`${path}\`: ${cause instanceof Error ? cause.message : cause}`);
  }
}

/** A private daemon could not be started. */
export class LaunchError extends ProcdError {}

/** The connection is gone. */
export class Disconnected extends ProcdError {
  constructor(
    message: string,
    /** Whether what was asked may have been done all the same. */
    readonly maybeDone: boolean = false,
  ) {
    super(`the connection to the daemon is gone: ${message}`);
  }
}

/** The daemon said something that makes no sense here. */
export class Nonsense extends ProcdError {}

/** The request cannot be sent as it is. */
export class Unsendable extends ProcdError {}

/** The connection that held a lease is gone, and the lease with it. */
export class LeaseLost extends ProcdError {}

/** A wait came to the end of its time, and the process still runs. */
export class WaitTimeout extends ProcdError {}

/** A wait for a pattern came back without one. */
export class NoMatch extends ProcdError {
  constructor(
    /** How things stand. */
    readonly page: Page,
    /** `exit`, `timeout` or `gap`. */
    readonly wokeBy: string,
  ) {
    super(`no match (${wokeBy}), the process is ${page.state}`);
  }
}

/** What a program can act on; each code has its own few of these. */
export interface Details {
  readonly field?: string;
  readonly cause?: string;
  readonly errno?: string;
  readonly processId?: string;
  readonly limit?: string;
  readonly scope?: string;
  readonly max?: number;
  readonly inUse?: number;
  readonly versions?: readonly number[];
  readonly [name: string]: unknown;
}

/** The daemon refused. Act on `code` and `details`; the message is for a person. */
export class Refused extends ProcdError {
  constructor(
    readonly code: string,
    message: string,
    /** Whether the same request may succeed later. */
    readonly retryable: boolean,
    readonly details: Details,
  ) {
    super(`${code}: ${message}`);
  }
}

/** A parameter is wrong or not supported yet: `details.field`. */
export class InvalidArguments extends Refused {}
/** The daemon's settings are wrong; it goes on with the old ones. */
export class InvalidSettings extends Refused {}
/** No running slot is free. */
export class ProcessQuotaExceeded extends Refused {}
/** No room for memory, spool, disk or another wait. */
export class OutputQuotaExceeded extends Refused {}
/** Trees cannot be held together as required. */
export class LifetimeEnforcementUnavailable extends Refused {}
/** Notifications were asked for without the feature. */
export class ProcessNotificationsUnsupported extends Refused {}
/** The command could not be started: `details.cause`. */
export class SpawnFailed extends Refused {}
/** The daemon could not set the process up: `details.cause`. */
export class ProcessSetupFailed extends Refused {}
/** No terminal is to be had, or the process has none. */
export class PtyUnavailable extends Refused {}
/** Unknown, removed or somebody else's: one answer for all. */
export class NotFound extends Refused {}
/** The process takes no input any more, or never did. */
export class StdinClosed extends Refused {}
/** No room for the input, and nothing of it was taken. */
export class InputBackpressure extends Refused {}
/** Bytes from the cursor on are not kept any more. */
export class CursorGap extends Refused {}
/** A cursor beyond the end of the output. */
export class CursorAhead extends Refused {}
/** A process that had to succeed passed its deadline. */
export class TimedOut extends Refused {}
/** A process that had to succeed was interrupted. */
export class Interrupted extends Refused {}
/** A process that had to succeed was terminated. */
export class Terminated extends Refused {}
/** A process that had to succeed was killed. */
export class Killed extends Refused {}
/** The daemon or the session shuts down, or is closed. */
export class SupervisorShuttingDown extends Refused {}
/** A record is damaged beyond repair. */
export class ManifestCorrupt extends Refused {}
/** The stored output is damaged; the record is not. */
export class SpoolCorrupt extends Refused {}
/** A process that had to succeed ran when the daemon ended. */
export class LostOnRestore extends Refused {}
/** A killed tree is not proven empty yet. */
export class TeardownFailed extends Refused {}
/** Daemon and client speak no version in common. */
export class UnsupportedVersion extends Refused {}
/** Not for this role, or not for this peer. */
export class PermissionDenied extends Refused {}
/** A count is at its limit. */
export class TooManyRequests extends Refused {}
/** A frame over the limit. */
export class FrameTooLarge extends Refused {}
/** The same key or id with another content. */
export class IdempotencyCollision extends Refused {}
/** A workspace is claimed by somebody else. */
export class WorkspaceBusy extends Refused {}
/** The call was cancelled by `$/cancel`. */
export class Cancelled extends Refused {}
/** A bug of the daemon; its log says more. */
export class Internal extends Refused {}

/** The class of each code of version 1. */
export const byCode: ReadonlyMap<string, typeof Refused> = new Map([
  ["invalid_arguments", InvalidArguments],
  ["invalid_settings", InvalidSettings],
  ["process_quota_exceeded", ProcessQuotaExceeded],
  ["output_quota_exceeded", OutputQuotaExceeded],
  ["lifetime_enforcement_unavailable", LifetimeEnforcementUnavailable],
  ["process_notifications_unsupported", ProcessNotificationsUnsupported],
  ["spawn_failed", SpawnFailed],
  ["process_setup_failed", ProcessSetupFailed],
  ["pty_unavailable", PtyUnavailable],
  ["not_found", NotFound],
  ["stdin_closed", StdinClosed],
  ["input_backpressure", InputBackpressure],
  ["cursor_gap", CursorGap],
  ["cursor_ahead", CursorAhead],
  ["timed_out", TimedOut],
  ["interrupted", Interrupted],
  ["terminated", Terminated],
  ["killed", Killed],
  ["supervisor_shutting_down", SupervisorShuttingDown],
  ["manifest_corrupt", ManifestCorrupt],
  ["spool_corrupt", SpoolCorrupt],
  ["lost_on_restore", LostOnRestore],
  ["teardown_failed", TeardownFailed],
  ["unsupported_version", UnsupportedVersion],
  ["permission_denied", PermissionDenied],
  ["too_many_requests", TooManyRequests],
  ["frame_too_large", FrameTooLarge],
  ["idempotency_collision", IdempotencyCollision],
  ["workspace_busy", WorkspaceBusy],
  ["cancelled", Cancelled],
  ["internal", Internal],
]);

/** The error that the error object of a reply stands for, its details in camel case already. */
export function refusal(body: Record<string, unknown>): Refused {
  const code = String(body.code ?? "");
  const kind = byCode.get(code) ?? Refused;
  const details = (typeof body.details === "object" && body.details ? body.details : {}) as Details;
  return new kind(code, String(body.message ?? ""), body.retryable === true, details);
}
