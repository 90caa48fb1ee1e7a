#!/usr/bin/python3 -B
"""`horovodrun report` writes the facts that a bug report needs, and no secret."""

import platform
import stat

from harness import *

# Each value occurs nowhere else in a report.
SECRETS = {
    "HOROVOD_JOB_SECRET": "5ec2e7" * 8,
    "_HOROVOD_SECRET_KEY": "c2VjcmV0LWtleQ==",
    "HOROVOD_MINE": "of-the-user",
    "SLURM_JWT": "eyJ-of-slurm",
    "PMI_PASSWORD": "of-pmi",
    "OMPI_MCA_orte_precondition_transports": "of-open-mpi",
    "https_proxy": "http://proxy-user:proxy-word@proxy.example:3128",
    "WANDB_API_KEY": "of-wandb",
    "AWS_SECRET_ACCESS_KEY": "of-aws",
    "UNRELATED": "of-nobody",
}
HIDDEN = [value for name, value in SECRETS.items() if name != "https_proxy"] + [
    "proxy-user",
    "proxy-word",
    "of-a-flag",
    "of-the-init",
]
SHOWN = {
    "HOROVOD_CYCLE_TIME": "7.5",
    "SLURM_JOB_ID": "4711",
    "PMIX_MCA_ptl": "^usock",
    "OMP_NUM_THREADS": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "LD_LIBRARY_PATH": "/opt/x/lib",
    "VIRTUAL_ENV": "/opt/venv",
}


def report(*words, cwd, code=0, **environment):
    done = run_to_end(
        [LAUNCHER, "report", *words], env=clean_environment(**environment), stdin=subprocess.DEVNULL, cwd=cwd
    )
    expect(done.returncode == code, done)
    return done.stderr


def test_it_holds_what_is_asked_for_and_no_secret():
    folder = scratch()
    config = folder / "config.yaml"
    config.write_text("params:\n  cache_capacity: 77\n")
    key = folder / "id"
    key.write_text("content-of-the-key\n")
    said = report(
        "out.txt",
        "--config-file",
        config,
        "-i",
        key,
        "-x",
        "A_TOKEN=of-a-flag",
        "--remote-init",
        "mysql -pof-the-init; login --token of-a-flag; echo of-wandb",
        PYTHON,
        "train.py",
        cwd=folder,
        **SECRETS,
        **SHOWN,
    )
    expect(said == "horovodrun: wrote out.txt; read it before you attach it to a bug report\n", said)
    path = folder / "out.txt"
    expect(stat.S_IMODE(path.stat().st_mode) == 0o600, oct(path.stat().st_mode))
    text = path.read_text()
    for secret in [*HIDDEN, "content-of-the-key"]:
        expect(secret not in text, f"{secret!r} is in\n{text}")
    version = run_to_end([LAUNCHER, "-v"], check=True).stdout.strip()
    memory = re.search(r"MemTotal:\s+(\d+ kB)", pathlib.Path("/proc/meminfo").read_text())[1]
    for words in (
        f"version: {version}",
        f"{LAUNCHER}, sha256 ",
        "horovod-agent: ",
        "libhorovod.so: ",
        f"kernel: Linux {platform.release()} {platform.machine()}",
        f"libc: glibc {platform.libc_ver()[1]}",
        "cores: ",
        f"memory: {memory}",
        "libssh: 0.",
        f"interpreter: {PYTHON}",
        "Available Frameworks:",
        "shared memory",
        "PMIx",
        "MPI",
        "cache_capacity: 77",
        "env: A_TOKEN\n",
        "https_proxy=http://<redacted>@proxy.example:3128",
        "SLURM_JWT=<redacted>",
        f"PYTHONPATH={BUILD / 'python'}",
        "remote_init: <redacted: ",
        *(f"{name}={value}" for name, value in SHOWN.items()),
    ):
        expect(words in text, f"{words!r} is not in\n{text}")
    for name in ("WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "UNRELATED", "HOME="):
        expect(name not in text, f"{name} is in\n{text}")


def test_a_file_that_exists_stays_as_it_is():
    folder = scratch()
    (folder / "horovod-report.txt").write_text("mine")
    (folder / "link").symlink_to("nowhere")
    for words, name in (((), "horovod-report.txt"), (("link",), "link")):
        said = report(*words, cwd=folder, code=2)
        expect(
            said == f"horovodrun: cannot write the report {name}: the file exists; remove or rename it\n",
            said,
        )
    expect((folder / "horovod-report.txt").read_text() == "mine", "it was changed")
    expect(not (folder / "nowhere").exists(), "the link was followed")


def test_a_bad_variable_is_in_the_report_and_a_bad_flag_is_refused():
    folder = scratch()
    report(cwd=folder, HOROVOD_CYCLE_TIME="soon")
    text = (folder / "horovod-report.txt").read_text()
    expect("HOROVOD_CYCLE_TIME: 'soon' is not a number" in text, text)
    said = report("other", "--no-such-flag", cwd=folder, code=2)
    expect("--no-such-flag" in said and not (folder / "other").exists(), said)


if __name__ == "__main__":
    main()
