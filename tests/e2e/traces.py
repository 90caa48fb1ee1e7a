"""Reads a timeline's file as strictly as a viewer may."""
import json
import pathlib

METADATA = {"process_name", "process_sort_index", "thread_name", "clock_alignment",
            "dropped_events"}


class Trace:
    """The events of a file, checked: JSON, known phases, times that do not go back, nesting."""

    def __init__(self, path):
        text = pathlib.Path(path).read_text()
        self.events = json.loads(text, parse_constant=lambda word: fail(f"{word} is no JSON"))
        self.names = {}      # pid -> tensor
        self.sequences = {}  # (tensor, rank) -> events
        self.clocks = {}     # rank -> the last clock_alignment
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
        """Such as ["B NEGOTIATE_ALLREDUCE", "X 0", "E", ...]."""
        return [" ".join([event["ph"], *filter(None, [event.get("name")])])
                for event in self.sequences.get((tensor, rank), [])]

    def times(self, tensor, rank, phase, name=None):
        return [event["ts"] for event in self.sequences.get((tensor, rank), [])
                if event["ph"] == phase and name in (None, event.get("name"))]


def fail(words):
    raise ValueError(words)


def why_perfetto_does_not_load(path, events):
    """None when Perfetto's trace processor finds that many events; else why it is not asked.

    ValueError when it finds something else.
    """
    try:
        from perfetto.trace_processor import TraceProcessor
    except ImportError as error:
        return f"no perfetto package: {error}"
    try:
        processor = TraceProcessor(trace=str(path))
    except Exception as error:  # it fetches its binary when it is first used
        return f"perfetto's trace processor does not start here: {error}"
    with processor:
        errors = list(processor.query(
            "select name, value from stats where severity = 'error' and value > 0"))
        if errors:
            fail(f"perfetto: {[(error.name, error.value) for error in errors]}")
        found = next(iter(processor.query("select count(*) as n from slice"))).n
        if found != events:
            fail(f"perfetto finds {found} slices, and there are {events}")
    return None
