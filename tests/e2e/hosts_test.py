#!/usr/bin/python3 -B
"""The hosts of this folder's tests: isolated, faulty on demand, removed without trace."""

from harness import *


def ssh(name, *command, seconds=60):
    try:
        return run_to_end(["ssh", name, *command], timeout=seconds, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return None


@world()
def test_hosts_are_apart_and_reach_each_other():
    expect(ssh("a", "hostname").stdout == "a\n", "a is not a")
    expect(ssh("a", "ssh", "b", "hostname").stdout == "b\n", "a does not reach b")
    expect("rank" not in ssh("a", "touch /dev/shm/x; ls /dev/shm; ls /proc | wc -l").stderr, "")
    expect(ssh("b", "ls", "/dev/shm").stdout == "", "shared memory is not apart")


@world()
def test_a_decoy_interface_swallows_everything():
    code = "import socket; socket.create_connection(('10.78.0.2', 22), 1)"
    done = ssh("a", f'{PYTHON} -c "{code}"')
    expect("timed out" in done.stderr, done)


@world()
def test_cut_and_heal():
    faults.cut("a", "launcher")
    expect(ssh("a", "true", seconds=1) is None, "the link is not cut")
    faults.heal("a", "launcher")
    expect(ssh("a", "true").returncode == 0, "the link is not healed")
    faults.cut("a", "b")
    expect(ssh("a", "timeout 1 ssh b true").returncode == 124, "the link of hosts is not cut")


@world()
def test_crash_and_start():
    faults.crash("a")
    expect(ssh("a", "true", seconds=1) is None, "a crashed host speaks")
    host.start(["a"])
    expect(ssh("a", "hostname").stdout == "a\n", "the host did not come back")


@world()
def test_freeze_and_thaw():
    faults.freeze("a")
    expect(ssh("a", "true", seconds=1) is None, "a frozen host speaks")
    faults.thaw("a")
    expect(ssh("a", "true").returncode == 0, "the host did not thaw")


@world()
def test_worlds_within_reach_of_each_other_do_not_meet():
    """Makes a world inside a world, with the same names and addresses."""
    done = run_to_end([HOSTS, "run", "--names", "a", "--", "ssh", "a", "hostname"], stdin=subprocess.DEVNULL)
    expect(done.stdout == "a\n", done)
    expect(ssh("b", "hostname").stdout == "b\n", "the outer world suffered")


@world()
def test_a_killed_world_leaves_nothing():
    before = Inventory()
    interfaces = set(os.listdir("/sys/class/net"))
    process = subprocess.Popen(
        [HOSTS, "run", "--", "sh", "-c", "echo up; sleep 600"], stdout=subprocess.PIPE, text=True
    )
    expect(process.stdout.readline() == "up\n", "it did not come up")
    process.kill()
    process.wait()
    before.wait_for_ends()
    expect(set(os.listdir("/sys/class/net")) == interfaces, "an interface is left")


if __name__ == "__main__":
    main()
