"""The life of a server in ten steps, a lost connection among them."""

import asyncio
import sys
from typing import Optional

from procd_client import Client, Process, Session

SERVER = """trap 'echo bye; exit' TERM
echo listening on port 8080
read -r line && echo "$line"
tail -f /dev/null & wait"""


async def whole(server: Process) -> str:
    return "".join([page.output or "" async for page in server.follow()])


async def story(socket: Optional[str] = None) -> str:
    async with Client.connect(socket) as client, Session.open(client) as session:
        # 1. Start a server.
        server = await session.shell(SERVER).background().label("web").start()

        # 2. Wait until it says that it listens.
        line = await server.wait_for(r"listening on port \d+")

        # 3. Send it input. Ended by `eof`, it can be sent again if the connection is lost.
        await server.write("hello\n", eof=True)

        # 4. Read by cursor, from behind that line on.
        page = await server.output(cursor=line.end_cursor + 1, wait="any")
        assert page.output == "hello\n", page

        # 5. Follow the output from its first byte on, beside everything else.
        following = asyncio.create_task(whole(server))

        # 6. Lose the connection. The follow goes on at its cursor over a new one.
        session.drop()

        # 7. Resume: anybody who has the credentials comes back, another program too.
        async with Client.connect(socket) as other:
            again = await Session.attach(other, session.credentials)

            # 8. Stop it. Answered when its whole tree is gone.
            stopped = await again.process(server.id).stop()
            assert stopped.state == "terminated", stopped

        # 9. Be told of the completion, once.
        async with session.notifications() as completions:
            completion = await completions.next()
            assert completion.process_id == server.id, completion

        # 10. Export the bytes that are kept.
        exported = await server.export().read()
        assert exported.decode() == await following
        return exported.decode()


if __name__ == "__main__":
    print(asyncio.run(story(*sys.argv[1:])), end="")
