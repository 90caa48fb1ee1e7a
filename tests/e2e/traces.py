"""Reads the file of a timeline strictly, like a viewer."""

import json
import pathlib
import subprocess

METADATA = {"process_name", "process_sort_index", "thread_name", "clock_alignment", "dropped_events"}


class Trace:
    """Returns the events of a file. Checks the JSON, the phases, the order of times and the nesting."""

    def __init__(self, path):
        text = pathlib.Path(path).read_text()
        self.events = json.loads(text, parse_constant=lambda word: fail(f"{word} is no JSON"))
        self.names = {}  # pid -> tensor
        self.sequences = {}  # (tensor, rank) -> events
        self.clocks = {}  # rank -> the last clock_alignment
        self.open = 0
        depth, last = {}, {}
        for event in self.events:
            if event["ph"] == "M":
                self.note(event)
                continue
            thread = event["pid"], event["tid"]
            if event["ph"] not in "BEXi" or event["pid"] not in self.names:
                fail(f"unexpected: {event}")
            if event["ts"] < last.get(thread, 0):
                fail(f"time goes back at {event}")
            last[thread] = event["ts"]
            depth[thread] = depth.get(thread, 0) + {"B": 1, "E": -1}.get(event["ph"], 0)
            if depth[thread] < 0:
                fail(f"an end without a beginning: {event}")
            self.sequences.setdefault((self.names[event["pid"]], event["tid"]), []).append(event)
        self.open = sum(depth.values())

    def note(self, event):
        if event["name"] not in METADATA:
            fail(f"unexpected: {event}")
        if event["name"] == "process_name":
            self.names[event["pid"]] = event["args"]["name"]
        if event["name"] == "clock_alignment":
            self.clocks[event["args"]["rank"]] = event["args"]

    def words(self, tensor, rank):
        """Returns phase and name of each event, for example ["B NEGOTIATE_ALLREDUCE", "X 0", "E", ...]."""
        return [
            " ".join([event["ph"], *filter(None, [event.get("name")])])
            for event in self.sequences.get((tensor, rank), [])
        ]

    def times(self, tensor, rank, phase, name=None):
        return [
            event["ts"]
            for event in self.sequences.get((tensor, rank), [])
            if event["ph"] == phase and name in (None, event.get("name"))
        ]


def fail(words):
    raise ValueError(words)


def perfetto_finds(python, path):
    """Returns the counts of Perfetto's trace processor for a file: {"errors": [], "slices": 7, "tracks": 2}.

    Raises ValueError if it cannot read the file. `python`: see perfetto/count.py.
    """
    script = pathlib.Path(__file__).with_name("perfetto") / "count.py"
    done = subprocess.run([python, str(script), str(path)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        fail(f"perfetto: {done.stderr[-2000:]}")
    return json.loads(done.stdout)
