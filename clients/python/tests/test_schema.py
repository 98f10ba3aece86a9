"""The published schema against frames that are known to be right, by a validator of others."""

from __future__ import annotations

import json
import unittest
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set, Tuple

import jsonschema

PROTOCOL = Path(__file__).parents[3] / "protocol"
SCHEMA = json.loads((PROTOCOL / "schema" / "v1.json").read_text())


def check(part: Any, value: Any) -> None:
    """Fails when the value is not as this part of the schema says."""
    schema = {"$schema": SCHEMA["$schema"], "$defs": SCHEMA["$defs"], **part}
    jsonschema.Draft202012Validator(schema).validate(value)


def refuses(part: Any, value: Any) -> bool:
    """Whether it is refused."""
    try:
        check(part, value)
    except jsonschema.ValidationError:
        return True
    return False


def lines(path: Path) -> List[Any]:
    """The lines of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def conversations() -> Iterator[Tuple[str, List[Any]]]:
    """Frames of one connection each, as they went."""
    for path in sorted((PROTOCOL / "tests" / "golden").glob("*.jsonl")):
        frames = lines(path)
        # A file of pairs uses its ids again.
        for at in range(0, len(frames), 2):
            yield path.stem, frames[at : at + 2]
    for path in sorted((PROTOCOL / "transcripts" / "v1-0.1.0").glob("*.jsonl")):
        by_name: Dict[str, List[List[Any]]] = {}
        for line in lines(path):
            if "sent" in line or "came" in line:
                frame = line.get("sent", line.get("came"))
                conversation = by_name.setdefault(line.get("on", "a"), [[]])
                # A connection of the same name, made anew.
                if frame.get("method") == "hello":
                    conversation.append([])
                conversation[-1].append(frame)
        for conversation in by_name.values():
            for frames in conversation:
                yield path.stem, frames


def check_frame(frame: Any, methods: Dict[Any, str], taken: Set[Any]) -> int:
    """Checks one frame; how many checks it were. A request has to be right if it was taken."""
    if "method" in frame and "id" not in frame:
        check(SCHEMA["notices"][frame["method"]], frame["params"])
    elif "method" in frame:
        methods[frame["id"]] = frame["method"]
        if frame["id"] not in taken:
            return 0
        check(SCHEMA["methods"][frame["method"]]["params"], frame.get("params", {}))
    elif "error" in frame:
        check(SCHEMA["error"], frame["error"])
    else:
        check(SCHEMA["methods"][methods[frame["id"]]]["result"], frame["result"])
    return 1


class TestSchema(unittest.TestCase):
    def test_every_recorded_frame_is_as_the_schema_says(self) -> None:
        jsonschema.Draft202012Validator.check_schema({"$defs": SCHEMA["$defs"]})
        count = 0
        for name, frames in conversations():
            methods: Dict[Any, str] = {}
            taken = {frame.get("id") for frame in frames if "result" in frame}
            for frame in frames:
                with self.subTest(name, frame=frame):
                    count += check_frame(frame, methods, taken)
        self.assertGreater(count, 350)

    def test_what_is_wrong_is_refused(self) -> None:
        start = SCHEMA["methods"]["process/start"]["params"]
        self.assertFalse(refuses(start, {"argv": ["true"], "env": {"A": None}}))
        for bad in ({"argv": "true"}, {"argv": None}, {"novel": 1}, {"timeout_ms": -1}):
            self.assertTrue(refuses(start, bad), bad)
        stop = SCHEMA["methods"]["process/stop"]["params"]
        self.assertTrue(refuses(stop, {"process_id": "A" * 22}))
        self.assertTrue(refuses(stop, {"process_id": "A" * 22, "mode": "gently"}))
        self.assertTrue(refuses(stop, {"process_id": "A" * 21 + "B", "mode": "kill"}))
