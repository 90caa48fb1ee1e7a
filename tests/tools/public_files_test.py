#!/usr/bin/python3 -B
"""The files for public services are YAML with the required fields. tests/gpu.sh names tests that exist, and its skip is
one message."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
try:
    import yaml
except ImportError:
    print("SKIP: /usr/bin/python3 has no yaml (python3-yaml)")
    sys.exit(77)


def load(name):
    return yaml.safe_load((ROOT / name).read_text())


def expect(condition, words):
    if not condition:
        sys.exit(f"FAIL {words}")


def scripts(text):
    """Returns the files of this repository that a text runs."""
    return set(re.findall(r"\./([a-z/._-]+\.sh)", text))


workflow = load(".github/workflows/tests.yml")
# YAML 1.1 reads the key "on" as a boolean.
expect({"push", "pull_request", "schedule", "workflow_dispatch"} <= set(workflow[True]), workflow)
commands = [[step["run"] for step in job["steps"] if "run" in step] for job in workflow["jobs"].values()]
tiers = ["./tests/run.sh", "./tests/run.sh --all", "./tests/run.sh --newest"]
expect([each[-1] for each in commands] == tiers, commands)
times = {each["cron"] for each in workflow[True]["schedule"]}
used = set(re.findall(r"github.event.schedule == '([^']+)'", (ROOT / ".github/workflows/tests.yml").read_text()))
expect(len(times) == 2 and times == used, f"{times} are scheduled, and jobs run at {used}")
pipeline = load(".gitlab-ci.yml")
expect([pipeline[job]["script"][0] for job in ("quick", "all", "newest")] == tiers, pipeline)
for name in (".github/workflows/tests.yml", ".gitlab-ci.yml"):
    for script in scripts((ROOT / name).read_text()):
        expect((ROOT / script).is_file(), f"{name} runs {script}, which is missing")

for name in ("bug_report", "feature_request"):
    form = load(f".github/ISSUE_TEMPLATE/{name}.yml")
    expect({"name", "description", "body"} <= set(form), f"{name}: {sorted(form)}")
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    ids = [field["id"] for field in fields]
    expect(len(set(ids)) == len(ids) and all(field["attributes"]["label"] for field in fields), ids)
    expect(any(field.get("validations", {}).get("required") for field in fields), f"{name}: none is required")
expect(
    "horovodrun report" in (ROOT / ".github/ISSUE_TEMPLATE/bug_report.yml").read_text(),
    "the bug report does not ask for `horovodrun report`",
)
expect(load(".github/ISSUE_TEMPLATE/config.yml") == {"blank_issues_enabled": False}, "config.yml")

script = (ROOT / "tests/gpu.sh").read_text()
named = re.findall(r"tests/[\w/]+\.(?:py|sh)", script)
expect(len(named) >= 3 and all((ROOT / name).is_file() for name in named), f"tests/gpu.sh runs {named}")
for file, case in re.findall(r"-B (tests/e2e/\w+\.py) (\w+)", script):
    expect(f"def test_{case}(" in (ROOT / file).read_text(), f"{file} has no test {case}")
if not list(pathlib.Path("/dev").glob("nvidia[0-9]*")):
    done = subprocess.run([ROOT / "tests/gpu.sh"], capture_output=True, text=True, timeout=200, check=False)
    expect(
        done.returncode == 77
        and "  nccl.2_ranks, at most " in done.stdout
        and len(done.stderr.splitlines()) == 1
        and "no NVIDIA GPU" in done.stderr,
        done,
    )
