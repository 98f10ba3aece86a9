// The life of a server in ten steps, a lost connection among them.

import { argv } from "node:process";
import { Client, Session, type Process } from "procd-client";

const SERVER = `trap 'echo bye; exit' TERM
echo listening on port 8080
read -r line && echo "$line"
tail -f /dev/null & wait`;

async function whole(server: Process): Promise<string> {
  let text = "";
  for await (const page of server.follow()) {
    text += page.output;
  }
  return text;
}

function check(holds: boolean, found: unknown): void {
  if (!holds) throw new Error(JSON.stringify(found));
}

export async function story(socket?: string): Promise<string> {
  await using session = await Session.open(await Client.connect({ socket }));

  // 1. Start a server.
  const server = await session.shell(SERVER).background().label("web").start();
  // 2. Wait until it says that it listens.
  const line = await server.waitFor("listening on port \\d+");
  // 3. Send it input. Ended by `eof`, it can be sent again if the connection is lost.
  await server.write("hello\n", { eof: true });
  // 4. Read by cursor, from behind that line on.
  const page = await server.output({ cursor: line.endCursor + 1, wait: "any" });
  check(page.output === "hello\n", page);
  // 5. Follow the output from its first byte on, beside everything else.
  const following = whole(server);
  // 6. Lose the connection. The follow goes on at its cursor over a new one.
  session.drop();
  // 7. Resume: anybody who has the credentials comes back, another program too.
  await using again = await Session.attach(await Client.connect({ socket }), session.credentials);
  // 8. Stop it. Answered when its whole tree is gone.
  const stopped = await again.process(server.id).stop();
  check(stopped.state === "terminated", stopped);
  // 9. Be told of the completion, once.
  for await (const completion of session.notifications()) {
    check(completion.processId === server.id, completion);
    break;
  }
  // 10. Export the bytes that are kept.
  const exported = new TextDecoder().decode(await server.export().read());
  check(exported === (await following), exported);
  return exported;
}

if (import.meta.filename === argv[1]) {
  process.stdout.write(await story(argv[2]));
}
