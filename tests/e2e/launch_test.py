#!/usr/bin/python3 -B
"""Jobs that succeed: the identity of the ranks, their hosts, their environment, and their remains."""

import json

from harness import *

IDENTITY = """
import json, os, socket, sys
names = "RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE HOSTNAME".split()
values = {name: os.environ["HOROVOD_" + name] for name in names}
print(json.dumps({**values, "on": socket.gethostname(), "cwd": os.getcwd(),
                  "word": os.environ.get("A_WORD"), "arguments": sys.argv[1:]}))
"""


def ranks_of(job):
    found = {}
    for line in job.out.splitlines():
        rank, _, text = line.partition("]<stdout>:")
        found[int(rank[1:])] = json.loads(text)
    return found


@world()
def test_ranks_know_who_they_are_and_get_arguments_environment_and_directory():
    words = ["a b", "$HOME", "'", '"', "", "*", "-x", "ä"]
    job = Job(
        *"-np 4 -H a:2,b:2".split(),
        PYTHON,
        "-c",
        IDENTITY,
        *words,
        cwd="/tmp",
        environment=clean_environment(A_WORD="two\nlines 'and' $more"),
    )
    job.ends_with(0)
    ranks = ranks_of(job)
    expect(len(ranks) == 4, job.describe())
    for rank, got in ranks.items():
        name = "ab"[rank // 2]
        wanted = {
            "RANK": str(rank),
            "SIZE": "4",
            "LOCAL_RANK": str(rank % 2),
            "LOCAL_SIZE": "2",
            "CROSS_RANK": str(rank // 2),
            "CROSS_SIZE": "2",
            "HOSTNAME": name,
            "on": name,
            "cwd": "/tmp",
            "word": "two\nlines 'and' $more",
            "arguments": words,
        }
        expect(got == wanted, f"rank {rank}: {got}\nexpected {wanted}")
    job.leaves_nothing()


HASHES = """
import os, sys
sys.stdout.write(f"{os.environ['PYTHONHASHSEED']} {hash('a word')}\\n")
sys.exit(3 if os.environ["HOROVOD_GENERATION"] == "0" and "fail" in sys.argv else 0)
"""


def hashes(where, *flags, code=0, words=(), **variables):
    """Returns the different pairs of PYTHONHASHSEED and a string's hash that ranks print."""
    job = Job("-np", 4, *flags, "-H", where, PYTHON, "-c", HASHES, *words, environment=clean_environment(**variables))
    job.ends_with(code)
    lines = [line.partition("]<stdout>:")[2].split() for line in job.out.splitlines() if "<stdout>:" in line]
    # After a rank's failure, the launcher may end ranks before they print.
    expect(4 + len(words) <= len(lines) <= 4 * (1 + len(words)), job.describe())
    for seed, _ in lines:
        expect(seed in ("random", "7") or seed not in job.err, f"the launcher shows the seed\n{job.describe()}")
    return {tuple(line) for line in lines}


@world()
def test_the_hashes_of_python_s_strings_are_equal_on_all_ranks():
    jobs = [
        hashes("a:2,b:2", "--verbose"),
        hashes("localhost:2,b:2", PYTHONHASHSEED=""),
        hashes("a:2,b:2", "--no-env"),
        hashes("a:2,b:2", "--max-restarts", 1, words=["fail"]),
    ]
    for pairs in jobs:
        expect(len(pairs) == 1 and all(1 <= int(seed) < 2**32 for seed, _ in pairs), f"{pairs}")
    expect(len(set.union(*jobs)) == 4, f"jobs have equal seeds: {jobs}")
    own = hashes("a:2,b:2", PYTHONHASHSEED="7")
    expect(own == hashes("a:2,b:2", "-x", "PYTHONHASHSEED=7") and {seed for seed, _ in own} == {"7"}, f"{own}")
    expect(len(hashes("a:2,b:2", PYTHONHASHSEED="random")) == 4, "random is the user's choice")


@world()
def test_localhost_and_another_host():
    job = Job("-np", 4, "-H", "localhost:2,b:2", PYTHON, "-c", IDENTITY)
    job.ends_with(0)
    expect(
        [got["on"] for _, got in sorted(ranks_of(job).items())] == ["launcher", "launcher", "b", "b"], job.describe()
    )
    job.leaves_nothing()


@world()
def test_a_hostfile():
    pathlib.Path("/tmp/e2e-hosts").write_text("# ours\na slots=1\n\nb slots=2\n")
    job = Job("-np", 3, "-hostfile", "/tmp/e2e-hosts", PYTHON, "-c", IDENTITY)
    job.ends_with(0)
    expect([got["on"] for _, got in sorted(ranks_of(job).items())] == ["a", "b", "b"], job.describe())


@world()
def test_an_address_and_a_user_in_place_of_a_name():
    job = Job("-np", 2, "-H", "10.77.0.1:1,root@b:1", PYTHON, "-c", IDENTITY)
    job.ends_with(0)
    expect([got["on"] for _, got in sorted(ranks_of(job).items())] == ["a", "b"], job.describe())


@world()
def test_the_users_ssh_configuration_counts():
    ssh = pathlib.Path.home() / ".ssh"
    (ssh / "id_ed25519").rename(ssh / "elsewhere")
    (ssh / "known_hosts").rename(ssh / "known_elsewhere")
    (ssh / "config").write_text(
        f"Host worker\n  HostName 10.77.0.2\n  IdentityFile {ssh}/elsewhere\n"
        f"  UserKnownHostsFile {ssh}/known_elsewhere\n"
    )
    job = Job("-np", 1, "-H", "worker:1", PYTHON, "-c", IDENTITY)
    job.ends_with(0)
    got = ranks_of(job)[0]
    expect((got["on"], got["HOSTNAME"]) == ("b", "worker"), job.describe())


@world()
def test_a_key_that_only_the_ssh_agent_holds():
    ssh = pathlib.Path.home() / ".ssh"
    socket = "/tmp/e2e-agent"
    subprocess.run(["ssh-agent", "-a", socket], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(
        ["ssh-add", "-q", ssh / "id_ed25519"],
        check=True,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "SSH_AUTH_SOCK": socket},
    )
    (ssh / "id_ed25519").unlink()
    (ssh / "id_ed25519.pub").unlink()
    job = Job("-np", 1, "-H", "b:1", "true", environment=clean_environment(SSH_AUTH_SOCK=socket))
    job.ends_with(0)


@world()
def test_a_key_by_flag():
    ssh = pathlib.Path.home() / ".ssh"
    (ssh / "id_ed25519").rename(ssh / "elsewhere")
    (ssh / "id_ed25519.pub").unlink()
    Job("-np", 1, "-H", "b:1", "-i", ssh / "elsewhere", "true").ends_with(0)


@world()
def test_a_host_that_was_never_met_is_met():
    known = pathlib.Path.home() / ".ssh/known_hosts"
    known.unlink()
    Job("-np", 2, "-H", "a:1,b:1", "true").ends_with(0)
    Job("-np", 2, "-H", "a:1,b:1", "true").ends_with(0)


@world()
def test_secrets_are_on_no_command_line():
    job = Job(
        *"-np 2 -H a:1,b:1".split(),
        PYTHON,
        WORKERS / "rank.py",
        "--seconds",
        4,
        environment=clean_environment(A_WORD="hush-hush"),
    )
    job.wait_for("ready", 2)
    secrets, lines = {"hush-hush"}, []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            lines.append((entry / "cmdline").read_bytes())
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        for found in re.findall(rb"HOROVOD_JOB_SECRET=([^\0]*)", environment):
            secrets.add(found.decode())
    expect(len(secrets) == 2, f"one job secret was expected: {len(secrets) - 1}")
    for secret in secrets:
        expect(not any(secret.encode() in line for line in lines), "a secret is on a command line")
        expect(secret not in job.err + job.out, "a secret was printed")
    job.ends_with(0)


@world()
def test_an_installation_elsewhere_runs_jobs():
    prefix = pathlib.Path("/tmp/e2e-prefix")
    subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
    code = (
        "import torch, horovod.torch as hvd; hvd.init(); "
        "print(hvd.__file__, hvd.allreduce(torch.ones(1), op=hvd.Sum).item())"
    )
    packages = prefix / "lib/python3/dist-packages"
    job = Job(
        *"-np 2 -H a:1,b:1".split(),
        PYTHON,
        "-c",
        code,
        program=prefix / "bin/horovodrun",
        environment=clean_environment(PYTHONPATH=str(packages)),
    )
    job.ends_with(0)
    expect(job.out.count(f"{packages}/horovod/torch/__init__.py 2.0") == 2, job.describe())


@world("a b c d e f g h")
def test_eight_hosts_at_once():
    job = Job("-np", 16, "-H", ",".join(f"{name}:2" for name in "abcdefgh"), PYTHON, "-c", IDENTITY)
    job.ends_with(0)
    expect(len(ranks_of(job)) == 16, job.describe())
    job.leaves_nothing()


@world("a b", "--private-tmp")
def test_the_agent_is_sent_once_and_found_again():
    for _ in range(2):
        Job("-np", 2, "-H", "a:1,b:1", "true").ends_with(0)
    cached = list((pathlib.Path.home() / ".cache/horovod").glob("*"))
    expect(len(cached) == 1, f"one agent was expected: {cached}")


@world("a b", "--private-tmp")
def test_two_jobs_at_once_that_both_send_the_agent():
    jobs = [Job("-np", 2, "-H", "a:1,b:1", "true") for _ in range(3)]
    for job in jobs:
        job.ends_with(0)


@world()
def test_a_noisy_shell_start_up_on_a_host_does_no_harm():
    (pathlib.Path.home() / ".bashrc").write_text("echo welcome; echo beware >&2\n")
    job = Job("-np", 2, "-H", "a:1,b:1", "true")
    job.ends_with(0)


@world()
def test_one_program_after_another_in_the_same_job():
    rank = WORKERS / "foreign_rank.py"
    job = Job("-np", 4, "-H", "a:2,b:2", "sh", "-c", f"{PYTHON} {rank} && {PYTHON} {rank}")
    job.ends_with(0)
    expect(job.out.count("sum 10") == 8, job.describe())
    job.leaves_nothing()


if __name__ == "__main__":
    main()
