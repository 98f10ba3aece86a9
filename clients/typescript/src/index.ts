// Client of procd, the supervisor daemon for long-running commands. Connect, call, follow; what a call means is the
// daemon's: PROTOCOL.md tells. A dropped connection is made anew and attached again, and what may be repeated is
// repeated.

export { Client, type ConnectOptions } from "./client.js";
export { Command } from "./command.js";
export * from "./errors.js";
export { Export } from "./export.js";
export { Follow } from "./follow.js";
export { Process, bytes, isLost, type FollowOptions } from "./process.js";
export { Lease, Operator, Session, randomCredentials, type Credentials } from "./session.js";
export { Events, Notifications } from "./subscriptions.js";
export * from "./types.js";
