#!/usr/bin/python3 -B
"""The Grafana dashboard and the alerts of examples/grafana use names of docs/metrics.md, and each alert fires.

tests/e2e/metrics_test.py runs the dashboard's queries in Prometheus, over the metrics of a job.
"""

import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples/grafana"
# Metrics of NVIDIA's dcgm-exporter.
OF_OTHERS = {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE"}
ROWS = ["Job", "Lateness", "Communication", "Hosts", "GPUs"]

JOB = 'job_id="1"'
WAITS = 'horovod_rank_waited_seconds_total{job_id="1",host="%s",rank="%d"}'
# By alert: series with a value per minute, and the labels of the alert after 20 minutes, if it fires then.
CASES = {
    "HorovodNoStep": [
        ({f"horovod_step_age_seconds{{{JOB}}}": "0+60x30"}, [JOB]),
        ({f"horovod_step_age_seconds{{{JOB}}}": "1x30"}, []),
    ],
    "HorovodRanksDown": [
        ({f"horovod_ranks_up{{{JOB}}}": "4x10 3x20", f'horovod_ranks{{{JOB},state="in_job"}}': "4x30"}, [JOB]),
        ({f"horovod_ranks_up{{{JOB}}}": "4x10 3x20", f'horovod_ranks{{{JOB},state="in_job"}}': "4x10 3x20"}, []),
    ],
    "HorovodHostLost": [
        ({f'horovod_hosts{{{JOB},state="lost"}}': "0x15 1x15"}, [f'{JOB},state="lost"']),
        ({f'horovod_hosts{{{JOB},state="lost"}}': "1x30"}, []),
    ],
    "HorovodStall": [
        ({f"horovod_stalls_total{{{JOB}}}": "0x15 1x15"}, [JOB]),
        ({f"horovod_stalls_total{{{JOB}}}": "1x30"}, []),
    ],
    "HorovodFailedOperations": [
        ({f'horovod_failed_operations_total{{{JOB},operation="{name}"}}': "0x15 1x15" for name in "ab"}, [JOB]),
        ({f'horovod_failed_operations_total{{{JOB},operation="a"}}': "0x30"}, []),
    ],
    "HorovodRestarted": [
        ({f"horovod_job_restarts_total{{{JOB}}}": "0x15 1x15"}, [JOB]),
        ({f"horovod_job_restarts_total{{{JOB}}}": "0x30"}, []),
    ],
    "HorovodLateRank": [
        (
            {
                WAITS % ("a", 0): "0+30x30",
                WAITS % ("b", 1): "0+1x30",
                **{(WAITS % at).replace("waited_seconds", "operations"): "0+60x30" for at in (("a", 0), ("b", 1))},
            },
            [f'{JOB},host="b",rank="1"'],
        ),
    ],
}


def queries_of_board():
    board = json.loads((FOLDER / "horovod.json").read_text("utf-8"))
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]


def names_in(query):
    return {re.sub("_bucket$", "", name) for name in re.findall(r"\b(?:horovod|DCGM)_\w+", query)}


class BoardTest(unittest.TestCase):
    def test_the_board_and_the_alerts_use_metrics_that_exist(self):
        page = (ROOT / "docs/metrics.md").read_text("utf-8")
        known = {
            name for line in re.findall(r"(?m)^\| (`.*?) \|", page) for name in re.findall(r"`(horovod_\w+)`", line)
        }
        parts = re.findall(r"`…_(\w+)`", page)
        known |= {f"horovod_{level}_{part}" for level in ("job", "host", "rank") for part in parts}
        alerts = (FOLDER / "alerts.yml").read_text("utf-8")
        used = {name for query in [*queries_of_board(), alerts] for name in names_in(query)}
        self.assertGreater(len(used), 25)
        self.assertEqual(used - known, OF_OTHERS)

    def test_no_window_of_the_board_is_constant(self):
        """A range shorter than Prometheus's scrape interval would be empty."""
        windows = {window for query in queries_of_board() for window in re.findall(r"\[([^]]*)\]", query)}
        self.assertEqual(windows, {"$__rate_interval"})

    def test_the_board_has_its_rows_and_no_panel_covers_another(self):
        panels = json.loads((FOLDER / "horovod.json").read_text("utf-8"))["panels"]
        rows = [panel["title"].partition(" (")[0] for panel in panels if panel["type"] == "row"]
        self.assertEqual(rows, ROWS)
        places = [
            (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
            for panel in panels
            for x in range(panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["h"])
        ]
        self.assertEqual(len(set(places)), len(places))
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))

    def test_each_alert_fires_for_its_case_alone(self):
        if not shutil.which("promtool"):
            self.skipTest("there is no promtool: packaging/packages-test.txt names prometheus")
        rules = (FOLDER / "alerts.yml").read_text("utf-8")
        self.assertEqual(set(re.findall(r"- alert: (\w+)", rules)), set(CASES))
        tests = [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": 'ALERTS{alertstate="firing"}',
                        "eval_time": "20m",
                        "exp_samples": [
                            {"labels": f'ALERTS{{alertname="{alert}",alertstate="firing",{labels}}}', "value": 1}
                            for labels in fired
                        ],
                    }
                ],
            }
            for alert, cases in CASES.items()
            for series, fired in cases
        ]
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            json.dump({"rule_files": [str(FOLDER / "alerts.yml")], "evaluation_interval": "1m", "tests": tests}, file)
            file.flush()
            done = subprocess.run(
                ["promtool", "test", "rules", file.name], capture_output=True, text=True, timeout=200, check=False
            )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
