"""The command line of the benches: choosing lines, printing results, checking them."""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

from driver import lines, teams


def arguments(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", metavar="NAME", action="append", help="a line, or all whose names begin so; again for more"
    )
    parser.add_argument("--quick", action="store_true", help="few and short rounds")
    parser.add_argument(
        "--check", action="store_true", help="exit code 1 when a line is missed, or could not be measured"
    )
    parser.add_argument("--json", metavar="FILE", help="the figures as JSON")
    parser.add_argument("--list", action="store_true", help="names of the lines")
    parser.add_argument("--python", default="/usr/bin/python3", help="interpreter with torch")
    parser.add_argument(
        "--tensorflow",
        help="interpreter with TensorFlow",
        default=str(teams.BUILD / "venv-tensorflow-2.21" / "bin" / "python3"),
    )
    parser.add_argument("--jax", help="interpreter with JAX", default=str(teams.BUILD / "venv-jax" / "bin" / "python3"))
    parser.add_argument("--before", metavar="BUILD", help="another build folder of ours, in turns with this one")
    parser.add_argument(
        "--bounds",
        action="store_true",
        help="training: also what an allreduce of 4 B leaves (word), and one of as many "
        "bytes in shared memory, nothing copied (registered); door-ddp: also DDP with gradient_as_bucket_view",
    )
    parser.add_argument("--on-hosts", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def chosen(options, table):
    exact = {line.name for line in table}
    return [
        line
        for line in table
        if not options.only
        or any(line.name == name if name in exact else line.name.startswith(name) for name in options.only)
    ]


def quantity(value, unit):
    if math.isnan(value):
        return "–"
    if unit == "µs" and value >= 10000:
        return f"{value / 1000:.1f} ms"
    if value == int(value):
        return f"{int(value)} {unit}"
    return f"{value:.{2 if value < 10 else 1}f} {unit}"


def report(name, what, result):
    verdict = "met" if result.passed else "MISSED"
    print(f"{name:14} {what}: {quantity(result.ours, result.unit)}, must be {result.must}: {verdict}")
    for peer, value in result.peers.items():
        ratio = "" if result.unit == "%" else f"{value / result.ours:8.2f} ×"
        best = "  best peer" if peer == result.best_peer() else ""
        print(f"{'':16}{peer:18} {quantity(value, result.unit):>10}{ratio}{best}")
    if result.note:
        print(f"{'':16}{result.note}")
    sys.stdout.flush()


def measure(options, wanted):
    """Returns the result of each line by its name."""
    bench = lines.Bench(
        options.quick,
        options.python,
        options.tensorflow,
        options.jax,
        options.before,
        options.bounds,
    )
    results = {}
    try:
        for line in wanted:
            try:
                results[line.name] = line.measure(bench)
            except (teams.Missing, teams.Refused, OSError) as error:
                results[line.name] = lines.Result("µs", must="measured", note=f"not measured: {error}")
            report(line.name, line.what, results[line.name])
    finally:
        bench.close()
    for reason in bench.missing.values():
        print(f"left out: {reason}")
    return results


def measure_on_hosts(program, options, wanted):
    """Runs this program on the hosts of the lines; returns the same as measure()."""
    with tempfile.NamedTemporaryFile(dir=teams.WORKERS, suffix=".json") as file:
        command = [
            teams.HOSTS,
            "run",
            "--root",
            "--no-decoys",
            "--names",
            wanted[0].hosts,
            "--",
            program,
            "--on-hosts",
            "--json",
            file.name,
            "--python",
            options.python,
        ]
        command += ["--quick"] * options.quick
        command += ["--before", options.before] if options.before else []
        for line in wanted:
            command += ["--only", line.name]
        done = subprocess.run(command, check=False)
        text = file.read()
    found = json.loads(text) if text else {}
    for line in wanted:
        if line.name not in found:
            note = f"not measured: hosts could not be made (exit code {done.returncode})"
            found[line.name] = {"unit": "µs", "note": note, "must": "measured"}
            report(line.name, line.what, lines.Result(**found[line.name]))
    return {name: lines.Result(**values) for name, values in found.items()}


def main(program, description, table, needs=lambda: None):
    """`needs` raises teams.Missing if no line can be measured."""
    options = arguments(description)
    wanted = chosen(options, table)
    if not wanted:
        sys.exit(f"there is no such line; there are: {' '.join(line.name for line in table)}")
    if options.list:
        print("\n".join(f"{line.name:14} {line.what}" for line in wanted))
        return
    try:
        needs()
    except teams.Missing as error:
        sys.exit(str(error))
    here = [line for line in wanted if options.on_hosts or not line.needs_hosts]
    there = [line for line in wanted if line not in here]
    results = measure(options, here) if here else {}
    for hosts in dict.fromkeys(line.hosts for line in there):
        results.update(measure_on_hosts(program, options, [line for line in there if line.hosts == hosts]))
    if options.json:
        pathlib.Path(options.json).write_text(
            json.dumps({name: vars(result) for name, result in results.items()}, indent=1, ensure_ascii=False) + "\n",
            encoding="utf-8",
        )
    missed = [name for name, result in results.items() if not result.passed]
    if options.check and missed:
        sys.exit(f"missed: {', '.join(missed)}")
