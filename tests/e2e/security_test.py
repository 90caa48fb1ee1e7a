#!/usr/bin/python3 -B
"""The unchanged command lines of docs/security.md."""

from harness import *

from flags_test import EXEC, stand_in
from rendezvous_test import Shell, expect_secret, ranks_in, workplace
from terminal import Terminal

DOCUMENT = (ROOT / "docs" / "security.md").read_text()


def lines_of(heading):
    """Returns the commands under a heading, one from each block."""
    section = DOCUMENT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^```sh(?: .*)?\n(.*)\n```$", section, re.M)


def make(line, folder):
    """Runs a command that makes files."""
    run_to_end(
        ["sh", "-c", line],
        cwd=folder,
        check=True,
        env=clean_environment(PATH=f"/tmp/e2e-programs:{clean_environment()['PATH']}"),
        text=False,
    )


@world()
def test_a_job_on_a_shared_cluster_uses_keys_that_were_compared():
    launch, connect, show = lines_of("On a shared cluster")
    ssh = pathlib.Path.home() / ".ssh"
    with workplace() as folder:
        (ssh / "config").write_text("StrictHostKeyChecking yes\n")
        known = (ssh / "known_hosts").read_text()
        said = Shell("launcher", folder, launch).ends_with(0)
        expect(len(ranks_in([said])) == 4, said)
        (ssh / "known_hosts").write_text(known.partition("\n")[2])
        said = Shell("launcher", folder, launch).ends_with(2)
        expect("StrictHostKeyChecking is yes" in said and f"with {connect.removesuffix(' true')}" in said, said)
        (refused,) = re.findall(r"unknown \(\S+ (\S+)\)", said)
        key = host.STATE / "a" / "host_key.pub"
        shown = Shell("a", folder, show.replace("/etc/ssh/ssh_host_ed25519_key.pub", str(key))).ends_with(0)
        expect(refused in shown, (refused, shown))
        # The user compares the fingerprints, and confirms.
        terminal = Terminal("/bin/sh", "-c", connect)
        terminal.shows(rf"fingerprint is {re.escape(refused)}\.(.|\n)*continue connecting")
        terminal.type("yes\n")
        expect(terminal.end() == 0, terminal.text)
        said = Shell("launcher", folder, launch).ends_with(0)
        expect(len(ranks_in([said])) == 4, said)


@world()
def test_hosts_join_over_the_internet():
    make_token, launch, join = lines_of("On the internet")
    with workplace() as folder:
        (folder / "token").unlink()
        make(make_token, folder)
        job = Shell("launcher", folder, launch)
        job.wait_for("to join by: horovod-agent --join ")
        expect_secret(folder)
        agents = [Shell(name, folder, join) for name in "ab"]
        expect(len(ranks_in([job.ends_with(0)])) == 4, job.said)
        for agent in agents:
            agent.ends_with(0)


@world()
def test_pods_are_reached_by_kubectl_and_join():
    reach, secret, join = lines_of("In Kubernetes")
    make_token, launch, _ = lines_of("On the internet")
    stand_in("kubectl", f'[ "$1" = create ] && {{ echo "$@" > created; exit; }}\n{EXEC}')
    with workplace() as folder:
        programs = f"PATH=/tmp/e2e-programs:$PATH; {reach}"
        expect(len(ranks_in([Shell("launcher", folder, programs).ends_with(0)])) == 4, "four ranks")
        (folder / "token").unlink()
        for line in (make_token, secret):
            make(line, folder)
        created = (folder / "created").read_text()
        # The volume holds the files of the Secret, which belong to root and a group.
        for name in re.findall(r"--from-file=(\S+)", created):
            os.chown(folder / name, 0, 4711)
            os.chmod(folder / name, 0o440)
        job = Shell("launcher", folder, launch)
        job.wait_for("to join by: ")
        agents = [Shell(name, folder, join.replace("/etc/horovod", str(folder))) for name in "ab"]
        expect(len(ranks_in([job.ends_with(0)])) == 4, job.said)
        for agent in agents:
            agent.ends_with(0)


if __name__ == "__main__":
    main()
