#!/usr/bin/python3 -B
"""horovodrun doctor: healthy hosts are ready, and each fault is found on the host or the link that has it."""

import json

from harness import *


def doctor(*arguments, code=0):
    job = Job("doctor", "--json", *arguments)
    job.ends_with(code)
    return json.loads(job.out)


def checks(answer, least=("warn", "fail")):
    """Returns host, id and verdict of the findings that are at least warnings."""
    return sorted(
        (name, check["id"], check["verdict"])
        for name, host_ in answer["hosts"].items()
        for check in host_["checks"]
        if check["verdict"] in least
    )


def port_of(name):
    """Returns the outer end of a host's link."""
    return f"eth0-{host.spec()['names'].index(name)}"


@world("a b c")
def test_healthy_hosts_are_ready_and_their_links_are_measured():
    job = Job("doctor", "-H", "a:2,b,c")
    job.ends_with(0)
    expect(job.out.splitlines()[-1].startswith("ready"), job.describe())
    job.leaves_nothing()
    answer = doctor("-H", "a:2,b,c")
    expect({(pair["from"], pair["to"]) for pair in answer["pairs"]} == {("a", "b"), ("a", "c"), ("b", "c")}, answer)
    expect(all(pair["send"] > 1e6 and pair["receive"] > 1e6 for pair in answer["pairs"]), answer)
    expect(abs(answer["hosts"]["b"]["facts"]["clock_offset"]) < 1, answer)


@world("a b c")
def test_faults_are_named_and_do_not_hide_the_other_hosts():
    answer = doctor("-H", "a,b,nohost", code=1)
    expect(checks(answer, ["fail"]) == [("nohost", "reach", "fail")], answer)
    expect([(pair["from"], pair["to"]) for pair in answer["pairs"]] == [("a", "b")], answer)
    enter = ["nsenter", "-t", str(host.pid_of("b")), "-m"]
    subprocess.run([*enter, "mount", "-t", "tmpfs", "-o", "size=512k", "none", "/dev/shm"], check=True)
    answer = doctor("-H", "a,b,c", code=1)
    expect(checks(answer, ["fail"]) == [("b", "shm", "fail")], answer)
    subprocess.run([*enter, "umount", "/dev/shm"], check=True)
    # Large packets are lost on the way to c, without a word from the kernel of c.
    for name in "abc":  # each packet is one segment
        subprocess.run(entering(name, "ip", "link", "set", "eth0", "gso_max_segs", "1"), check=True)
    subprocess.run(["ip", "link", "set", port_of("c"), "mtu", "1200"], check=True)
    answer = doctor("-H", "a,b,c", code=1)
    expect({check[1] for check in checks(answer, ["fail"])} <= {"mtu_lost", "reach_pair", "reach_peers"}, answer)
    subprocess.run(["ip", "link", "set", port_of("c"), "mtu", "1500"], check=True)


@world("a b c d")
def test_a_slow_host_is_named():
    rate = "rate 20mbit burst 32k latency 50ms".split()
    for name, each in {"a": rate, "b": rate, "c": rate, "d": ["rate", "4mbit", *rate[2:]]}.items():
        subprocess.run(["tc", "qdisc", "add", "dev", port_of(name), "root", "tbf", *each], check=True)
    job = Job("doctor", "--json", "-H", "a,b,c,d")
    code = job.wait()
    answer = json.loads(job.out)
    # It is a note if d happens to be busier than the others.
    found = [(check[0], check[2]) for check in checks(answer, ["note", "warn", "fail"]) if check[1] == "bandwidth"]
    expect([name for name, _ in found] == ["d"] and code == (found[0][1] == "fail"), answer)


@world("a b c")
def test_a_spare_replaces_a_host_with_a_failure_and_without_a_spare_the_job_may_stop():
    enter = ["nsenter", "-t", str(host.pid_of("b")), "-m"]
    subprocess.run([*enter, "mount", "-t", "tmpfs", "-o", "size=512k", "none", "/dev/shm"], check=True)
    job = Job("-np", 2, "-H", "a,b,c", "--spares", 1, "--preflight", "net", "hostname")
    job.ends_with(0)
    expect(sorted(job.out.splitlines()) == ["[0]<stdout>:a", "[1]<stdout>:c"], job.describe())
    expect(any("host b: /dev/shm has 512K free" in line for line in job.said()), job.describe())
    job.leaves_nothing()
    stopping = ("--preflight-action", "stop")
    job = Job("-np", 2, "-H", "a,b", "--preflight", "net", *stopping, "touch", job.folder / "started")
    job.ends_with(2)
    expect(not (job.folder / "started").exists() and "--preflight-action stop" in job.said()[-1], job.describe())
    # Quick warns alone, and off says nothing.
    job = Job("-H", "a,b", "true")
    job.ends_with(0)
    expect(len(job.said()) == 1 and "host b: /dev/shm has 512K free" in job.said()[0], job.describe())
    job = Job("-H", "a,b", "--preflight", "off", "true")
    job.ends_with(0)
    expect(job.said() == [], job.describe())


@world("a b")
def test_bad_input_is_one_sentence():
    for arguments, words in [
        (["-H", "a,b", "--preflight", "off"], "doctor takes --preflight quick, net or full"),
        (["-H", "a:x,b"], "-H"),
        (["-H", "a", "--preflight", "deep"], "--preflight"),
    ]:
        job = Job("doctor", *arguments)
        job.ends_with(2)
        expect(len(job.said()) == 1 and words in job.said()[0], job.describe())
    # A level that a job cannot have is said, and mpirun starts no agents.
    job = Job("-np", 1, "--min-np", 1, "-H", "a", "--preflight", "net", "true")
    job.ends_with(0)
    expect(len(job.said()) == 1 and "--preflight net is for jobs of constant size" in job.said()[0], job.describe())
    job = Job("-H", "a", "--preflight-action", "stop", "true")
    job.ends_with(0)
    expect(len(job.said()) == 1 and "has no effect without --preflight net or full" in job.said()[0], job.describe())
    job = Job("--mpi", "-np", 1, "--preflight", "net", "true")
    job.ends_with(2)
    expect("--preflight" in job.err, job.describe())


if __name__ == "__main__":
    main()
