#!/usr/bin/python3 -B
"""Horovod's own workers run under this project's launcher."""

from harness import *

WORKER = ROOT / "tests" / "conformance" / "original" / "worker.py"


@world()
def test_workers_of_the_original_meet_by_the_loopback_of_their_hosts():
    job = Job("--insecure-compat", "-np", 4, "-H", "a:2,b:2", PYTHON, "-B", WORKER, 5)
    job.ends_with(0)
    met = re.findall(r"rank (\d) of 4 met all over (\S+) by 127\.0\.0\.1$", job.out, re.M)
    expect(sorted(rank for rank, _ in met) == list("0123"), job.describe())
    expect(len({address for _, address in met}) == 2, job.describe())
    job.leaves_nothing()


def test_workers_of_the_original_on_one_host():
    job = Job("--insecure-compat", "-np", 2, PYTHON, "-B", WORKER, 100)
    job.ends_with(0)
    expect(job.out.count("met all over 127.0.0.1 by 127.0.0.1") == 2, job.describe())
    job.leaves_nothing()


STRANGER = """
import os, socket
where = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
for user in 0, 65534:
    os.setuid(user)
    with socket.create_connection(where, 20) as connection:
        connection.sendall(b"GET /s/k HTTP/1.1\\r\\n\\r\\n")
        print(user, connection.recv(4096), flush=True)
"""


def test_another_user_of_the_host_is_refused():
    if os.geteuid() != 0:
        raise Skip("only root can become another user")
    job = Job("--insecure-compat", "-np", 1, PYTHON, "-c", STRANGER)
    job.ends_with(0)
    expect("0 b'HTTP/1.1 404 " in job.out, job.describe())
    expect(
        "65534 b'HTTP/1.1 403 " in job.out
        and "this connection comes from user 65534 of this host, where only user 0 and root are served" in job.out,
        job.describe(),
    )


def test_without_the_flag_ranks_get_no_port():
    job = Job("-np", 1, "--no-pmix", "sh", "-c", "echo agent=$PPID; env; ss -ltnp")
    job.ends_with(0)
    expect("HOROVOD_STORE" in job.out, job.describe())
    agent = re.search(r"agent=(\d+)", job.out)[1]
    expect("HOROVOD_GLOO" not in job.out and f"pid={agent}," not in job.out, job.describe())


if __name__ == "__main__":
    main()
