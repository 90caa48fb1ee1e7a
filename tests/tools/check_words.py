#!/usr/bin/python3 -B
"""Finds private names that the project replaced by the field's terms, and class names with two definitions.

usage: check_words.py [ROOT]

Looks at tracked files only. FILES and TYPES are exact names of files (without suffix) and of types; PARTS are
words within identifiers (kArenaMagic, create_arena). docs/glossary.md explains the special words that remain.
"""

import collections
import pathlib
import re
import subprocess
import sys

# Old file name -> its successor. A folder limits the rule to that folder.
FILES = {
    "foresight": "speculation",
    "foresight_test": "speculation_test",
    "engine_foresight": "speculative_exchange",
    "crossing": "inter_host_allreduce",
    "collectives/algorithms/route": "schedule",
    "lane": "peer_stream",
    "wide": "half_conversion",
    "arena": "shared_region",
    "segment": "sub_region",
    "greeting": "handshake",
    "greeting_fuzz": "handshake_fuzz",
    "host_meeting": "local_rendezvous",
    "mesh_meeting": "mesh",
    "reception": "local_acceptor",
    "board": "key_value_store",
    "baton": "progress_lock",
    "core_patience": "adaptive_yield",
    "patience": "inline_wait",
    "departure": "shutdown_protocol",
    "farewell": "goodbye",
    "launched_elsewhere": "foreign_launcher",
    "launcher_signs": "launcher_detection",
    "engine_choice": "backend_selection",
    "engine_agreement": "backend_agreement",
    "lobby": "join_queue",
    "starter": "parent_process",
    "trial": "host_preparation, isolated_load",
    "trial_world": "single_rank_world",
    "errand": "helper_command",
    "visit": "reachability",
    "meeting_place": "master_port_reservation",
    "gatherer": "host_aggregator",
    "gathering": "host_aggregation",
    "whereabouts": "process_snapshot",
    "world_watch": "world_reports",
    "keeper": "durable_store",
    "etcd_keeper": "etcd_durable_store",
    "kept": "records",
    "plain_store": "unsigned_store",
    "plain_http_store": "unsigned_http_store",
    "plain_workers": "original_workers",
    "bell": "notification",
    "team": "communicator",
    "flat": "gradient_bucket",
    "shortcut": "fast_path",
    "engine_conformance": "backend_conformance",
    "table_faces": "table_facades",
}

# Old type name -> its successor.
TYPES = {
    "Foresight": "Speculation",
    "Brought": "EagerData",
    "Crossing": "InterHostAllreduce",
    "CrossingPlan": "InterHostConfig",
    "Lane": "PeerStream, BatchQueue, PooledConnection",
    "Arena": "SharedRegion",
    "Segment": "SubRegion",
    "Greeting": "handshake, AgentHello",
    "HostMeeting": "LocalRendezvous",
    "Reception": "LocalAcceptor",
    "Board": "KeyValueStore",
    "Baton": "ProgressLock",
    "CorePatience": "AdaptiveYield",
    "Patience": "InlineWait",
    "Departure": "ShutdownProtocol",
    "Lobby": "JoinQueue",
    "Trial": "HostPreparation",
    "Errand": "HelperCommand, ForwardRequest",
    "Visit": "ReachabilityTest",
    "MeetingPlace": "MasterPortReservation",
    "Gatherer": "HostAggregator",
    "Whereabouts": "ProcessSnapshot",
    "WorldWatch": "WorldReports",
    "Keeper": "DurableStore",
    "EtcdKeeper": "EtcdDurableStore",
    "StackOffer": "StackChannel",
    "Team": "BackendCommunicator",
    "Said": "OutputChunk",
    "Ran": "ExecResult",
    "Mail": "MessageChannel",
    "Letter": "Message",
    "Copier": "CopyCommand",
}

# Word in an identifier of C, C++ or Python -> its successor.
PARTS = {
    "arena": "shared_region",
    "baton": "progress_lock",
    "brain": "bfloat16",
    "deputy": "proxy",
    "errand": "helper_command",
    "farewell": "goodbye",
    "foresight": "speculation",
    "gatherer": "host_aggregator",
    "greeting": "handshake",
    "guest": "client, foreign launcher",
    "herald": "credential_server",
    "keeper": "durable_store, owner",
    "lobby": "join_queue",
    "meeting": "rendezvous, bootstrap",
    "patience": "timeout",
    "postman": "delayed_delivery",
    "reception": "acceptor",
    "vain": "hung, abandoned",
    "whereabouts": "process_snapshot",
}
# Words in the product's C and C++: messages between processes use the field's verbs.
SPEECH = {
    "dismiss": "reject, end",
    "greet": "send_hello",
    "hear": "receive",
    "heard": "received",
    "hears": "receives",
    "obey": "execute, handle",
    "said": "received, output",
    "say": "send, print, report",
    "says": "kind",
    "tell": "send, notify, report",
    "told": "notified",
}
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
IDENTIFIER = re.compile(r"\b[A-Za-z_]\w*\b")

# Each class name at namespace scope has one definition in the product, except these; with the reason.
SAME_NAME = {
    "Binding": "the functions of libhorovod.so as Python has set them, in two Python modules that share no code",
    "DataType": "the enum of a library, in its namespace abi: oneCCL's and NCCL's",
    "Generation": "a generation as the launcher makes it, and as ranks get it from the store",
    "Library": "the functions of libhorovod.so that a component calls, in three that do not link it",
    "Options": "the options of a program's command line; and of an operation, in the C++ API",
    "Plugin": "the entry points of a plugin, in the one source of each plugin that has them",
    "SshConnection": "the connection, and its stand-in in builds without libssh",
    "StackChannel": "the channel for Python stacks, as its rank opens it and as an agent finds it in /proc",
}

PRODUCT = ("src/", "launcher/", "rendezvous/", "plugins/", "python/", "include/")
# These files name the words themselves, or an argument of Keras.
WORD_LISTS = ("tests/tools/check_", "tests/python/keras_script.py")
# Python is tokenized, because a single line of a docstring looks like code.
COMMENT_OR_STRING = re.compile(r"//.*|(?<!\S)#(?!include|define|if|el|endif).*|\"(?:[^\"\\\\]|\\\\.)*\"|^\s*[*] .*")
CODE = (".h", ".hpp", ".c", ".cpp", ".py")
DEFINITION = re.compile(
    r"^(?:class|struct|union|enum(?: class)?)\s+(?:[A-Z_]+(?:\(\w+\))?\s+)?(\w+)(?:\s+final)?\s*"
    r"(?::[^:;{][^;{]*)?\{",
    re.M,
)


def private_parts(line, words):
    """Yields (identifier, word) of each identifier with one of the words, in code only."""
    for name in IDENTIFIER.findall(COMMENT_OR_STRING.sub("", line)):
        for part in PART.findall(name):
            if part.lower() in words:
                yield name, part.lower()


def faults(root, paths):
    """Returns one message per fault in the files `paths` below `root`."""
    found = []
    definitions = collections.defaultdict(set)
    gone = re.compile(r"(?:class|struct)\s+(" + "|".join(TYPES) + r")\b(?!\w)(?!\s*;)")
    for path in paths:
        stem = path.with_suffix("")
        for name, successor in FILES.items():
            if path.suffix in CODE and f"/{stem}".endswith(f"/{name}"):
                found.append(f"{path}: the name {name} is replaced by: {successor}")
        if path.suffix in CODE and not str(path).startswith(WORD_LISTS):
            text = (root / path).read_text()
            words = PARTS
            if str(path).startswith(PRODUCT) and path.suffix != ".py":
                words = PARTS | SPEECH
            for number, line in enumerate(text.splitlines(), 1):
                found += [
                    f"{path}:{number}: {name}: '{part}' is replaced by: {words[part]}"
                    for name, part in private_parts(line, words)
                ]
        if path.suffix not in (".h", ".hpp", ".c", ".cpp"):
            continue
        for match in gone.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{path}:{line}: the class name {match[1]} is replaced by: {TYPES[match[1]]}")
        if str(path).startswith(PRODUCT):
            for match in DEFINITION.finditer(text):
                definitions[match[1]].add(str(path))
    for name, files in sorted(definitions.items()):
        if len(files) > 1 and name not in SAME_NAME:
            found.append(
                f"class {name} has {len(files)} definitions ({', '.join(sorted(files))}): one name, one meaning"
            )
    found += [
        f"class {name} has one definition: take it from SAME_NAME" for name in SAME_NAME if len(definitions[name]) == 1
    ]
    return found


def main(root="."):
    root = pathlib.Path(root)
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        print("not a clone with git: which files are tracked is unknown")
        return 77
    paths = [pathlib.Path(name) for name in listed.stdout.splitlines()]
    found = faults(root, [path for path in paths if (root / path).is_file()])
    print("\n".join(found) or f"{len(paths)} files: no replaced name, no class name of two meanings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
