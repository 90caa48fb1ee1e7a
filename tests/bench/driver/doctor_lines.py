"""The lines of tests/bench/doctor: the time of horovodrun doctor, and what it finds."""

import json
import os
import statistics
import subprocess
import sys
import tempfile

from driver import doctor_faults, teams
from driver.lines import Line, Result

sys.path.insert(0, str(teams.ROOT / "tests" / "hosts"))

TIMEOUT = 200
FEW, MANY = "a b c d", " ".join(f"h{number}" for number in range(64))
# Hosts of one machine share its processors, so that each of them waits at times.
SHARED = ("contention", "cpu_speed", "memory_speed")


def doctor(hosts, level="net"):
    """Returns the answer of the doctor."""
    with tempfile.TemporaryDirectory() as state:
        done = subprocess.run(
            [teams.LAUNCHER, "doctor", "--json", "--preflight", level, "-H", hosts],
            env={**os.environ, "HOROVOD_STATE_DIR": state},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    if done.returncode not in (0, 1):
        raise teams.Refused(f"exit code {done.returncode}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


def findings(answer):
    """Returns verdict, id and hosts of each finding: one host, or the two ends of a link."""
    return [
        (check["verdict"], check["id"], [name, check["to"]] if "to" in check else [name])
        for name, each in answer["hosts"].items()
        for check in each["checks"]
    ]


def described(found):
    return ", ".join(f"{verdict} {'-'.join(hosts)} {name}" for verdict, name, hosts in found) or "nothing"


def found(fault):
    """Injects a fault. The doctor must name it where it is, and warn about no other host or link."""

    def measure(bench):
        del bench
        try:
            with doctor_faults.limited_links(FEW.split()), fault.inject():
                answer = doctor(fault.hosts, fault.level)
        except subprocess.CalledProcessError as error:
            raise teams.Refused(f"the fault could not be injected: {error}") from error
        all_found = findings(answer)
        right = [each for each in all_found if fault.is_right(*each)]
        wrong = [
            each
            for each in all_found
            if each[0] in ("warn", "fail") and each[1] not in SHARED and not fault.is_there(each[2])
        ]
        note = "" if right and not wrong else f"found: {described(all_found)}"
        must = f"{' or '.join(fault.verdicts)} {'-'.join(fault.place)} {fault.id}"
        return Result("s", answer["seconds"], must=must, passed=bool(right) and not wrong, note=note)

    return measure


def many(bench):
    """Measures 64 hosts, whose links carry 20 Mb/s."""
    names = MANY.split()
    with doctor_faults.limited_links(names):
        answers = [doctor(",".join(names)) for _ in range(1 if bench.is_quick else 3)]
    seconds = statistics.median(answer["seconds"] for answer in answers)
    failed = [each for answer in answers for each in findings(answer) if each[0] == "fail"]
    measured = min(len({(pair["from"], pair["to"]) for pair in answer["pairs"]}) for answer in answers)
    note = f"{measured} pairs; failures: {described(failed)}"
    passed = seconds <= 10 and not failed and measured == 6 * 32
    return Result("s", seconds, must="≤ 10 s, 192 pairs, no failure", passed=passed, note=note)


def busy(bench):
    """Examines healthy hosts beside programs that take all processors."""
    runs = 10 if bench.is_quick else 200
    failed = []
    with doctor_faults.hogs(os.sched_getaffinity(0)):
        for _ in range(runs):
            failed += [each for each in findings(doctor(",".join(FEW.split()))) if each[0] == "fail"]
    note = f"{runs} runs; failures: {described(failed)}"
    return Result("failures", len(failed), must="none", passed=not failed, note=note)


LINES = [
    Line("many", "64 hosts at level net, links of 20 Mb/s", many, True, MANY),
    *(Line(f"fault-{each.name}", each.what, found(each), True, FEW) for each in doctor_faults.FAULTS),
    Line("busy", "false failures on four busy hosts", busy, True, FEW),
]
