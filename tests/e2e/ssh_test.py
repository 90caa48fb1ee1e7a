#!/usr/bin/python3 -B
"""The launcher reaches hosts like the user's own `ssh HOST`; after a failure, its advice works."""

import socket

from harness import *

SSH = pathlib.Path.home() / ".ssh"
# A line that requires the system's ssh, because a program connects to host b.
BY_SYSTEM_SSH = "ProxyCommand bash -c 'exec 3<>/dev/tcp/10.77.0.2/%p; cat <&3 & cat >&3'"


def restart(name, *lines):
    """Restarts a host with these lines first in the configuration of its sshd: the first value counts."""
    path = host.STATE / name / "sshd_config"
    path.write_text("".join(line + "\n" for line in lines) + path.read_text())
    faults.end(name)
    host.start([name])


def configure(*lines):
    (SSH / "config").write_text("".join(line + "\n" for line in lines))


def ssh(*arguments):
    return subprocess.run(
        ["ssh", "-o", "BatchMode=yes", *arguments, "true"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def refused(job, *patterns):
    job.ends_with(2)
    one_sentence(job, *patterns)


@world()
def test_a_key_that_is_known_without_a_port_opens_its_host_at_any():
    restart("b", "Port 2202")
    configure("StrictHostKeyChecking yes")
    done = ssh("-p", "2202", "root@b")
    expect(done.returncode == 0, done.stderr)
    job = Job("-p", 2202, "-np", 1, "-H", "root@b:1", "true")
    job.ends_with(0)
    # A different key under the name with the port is refused.
    known = (SSH / "known_hosts").read_text().splitlines()
    key_a = next(line for line in known if line.startswith("a,")).split(" ", 1)[1]
    (SSH / "known_hosts").write_text(f"[b]:2202 {key_a}\n")
    expect(ssh("-p", "2202", "root@b").returncode == 255, "ssh accepts another key")
    refused(Job("-p", 2202, "-np", 1, "-H", "root@b:1", "true"), "host b", "has changed", r"-R '\[b\]:2202'")


@world()
def test_the_advice_about_an_unknown_key_works_as_it_stands():
    restart("b", "Port 2202")
    (SSH / "known_hosts").unlink()
    configure("StrictHostKeyChecking yes")
    job = Job("-p", 2202, "-np", 1, "-H", "root@b:1", "true")
    refused(job, "host b", r"connect once with ssh -o StrictHostKeyChecking=ask -p 2202 root@b$")
    expect(job.err.count("2202") == 1, job.describe())


@world()
def test_blocks_for_the_name_that_the_user_wrote_count():
    configure("Match originalhost worker", "  HostName 10.77.0.2")
    job = Job("-np", 1, "-H", "worker:1", "hostname")
    job.ends_with(0)
    expect("b" in job.out, job.describe())


@world()
def test_a_policy_in_a_block_that_a_command_decides_counts():
    (SSH / "known_hosts").unlink()
    configure("Match exec true", "  StrictHostKeyChecking yes")
    refused(Job("-np", 1, "-H", "b:1", "true"), "host b", "StrictHostKeyChecking is yes")


@world()
def test_a_revoked_key_is_refused_in_every_file_that_ssh_reads():
    known = (SSH / "known_hosts").read_text().splitlines()
    key_b = next(line for line in known if line.startswith("b,")).split(" ", 1)[1]
    for name, lines in (
        ("known_hosts2", ()),
        ("third", (f"UserKnownHostsFile {SSH}/known_hosts {SSH}/third",)),
        ("aliased", (f"UserKnownHostsFile {SSH}/aliased", "HostKeyAlias cluster")),
    ):
        revoked = "cluster" if name == "aliased" else "b"
        (SSH / name).write_text(f"cluster {key_b}\n@revoked {revoked} {key_b}\n")
        configure(*lines)
        expect(ssh("b").returncode == 255, f"ssh accepts a revoked key of {name}")
        refused(Job("-np", 1, "-H", "b:1", "true"), "host b", "REVOKED|revoked")
        (SSH / name).unlink()


@world()
def test_keys_in_several_files_are_known():
    (SSH / "known_hosts").rename(SSH / "known_hosts2")
    configure("StrictHostKeyChecking yes")
    Job("-np", 2, "-H", "a:1,b:1", "true").ends_with(0)


@world()
def test_a_new_key_is_named_once_with_its_fingerprint():
    restart("b", "Port 2202")
    shown = run_to_end(["ssh-keygen", "-lf", host.STATE / "b" / "host_key.pub"], check=True).stdout.split()[1]
    for lines in (), (BY_SYSTEM_SSH,), (BY_SYSTEM_SSH, "StrictHostKeyChecking no"):
        (SSH / "known_hosts").unlink()
        configure(*lines)
        job = Job("-p", 2202, "-np", 1, "-H", "b:1", "true")
        job.ends_with(0)
        expect(
            re.fullmatch(
                rf"\[warning\] horovodrun: host b: its host key is new \(ssh-ed25519 {re.escape(shown)}\) "
                rf"and was added to {SSH}/known_hosts\n",
                job.err,
            ),
            job.describe(),
        )
        # The system's ssh hashes names if the configuration requires it.
        found = subprocess.run(["ssh-keygen", "-F", "[b]:2202"], stdout=subprocess.PIPE, text=True)
        expect(found.stdout.count("ssh-ed25519") == 1, f"ssh-keygen -F: {found.stdout}")
        expect(ssh("-p", "2202", "b").returncode == 0, "ssh does not know the key")
        job = Job("-p", 2202, "-np", 1, "-H", "b:1", "true")
        job.ends_with(0)
        expect(job.err == "", job.describe())


@world()
def test_a_message_says_that_no_file_keeps_a_new_key():
    restart("b", "Port 2202")
    for lines in (), (BY_SYSTEM_SSH,):
        (SSH / "known_hosts").unlink(missing_ok=True)
        configure(*lines, "UserKnownHostsFile /proc/nothing/known_hosts")
        job = Job("-p", 2202, "-np", 1, "-H", "b:1", "true")
        job.ends_with(0)
        expect(
            re.fullmatch(
                r"\[warning\] horovodrun: host b: its host key is new \(ssh-ed25519 SHA256:\S+\) and was "
                r"accepted, but not remembered: .*/proc/nothing/known_hosts.*\n",
                job.err,
            ),
            job.describe(),
        )


@world()
def test_no_setting_accepts_a_changed_or_a_revoked_key():
    known = {line.split(",")[0]: line.split(" ", 1)[1] for line in (SSH / "known_hosts").read_text().splitlines()}
    for lines in (), (BY_SYSTEM_SSH,):
        configure(*lines, "StrictHostKeyChecking no")
        (SSH / "known_hosts").write_text(f"b {known['a']}\n")
        refused(Job("-np", 1, "-H", "b:1", "true"), "host b", "has changed")
        (SSH / "known_hosts").write_text(f"b {known['b']}\n@revoked b {known['b']}\n")
        refused(Job("-np", 1, "-H", "b:1", "true"), "host b", "revoked")


@world()
def test_a_configuration_that_hangs_ends_with_the_time_for_the_start():
    configure('Match exec "sleep 1000"')
    job = Job("-np", 2, "-H", "a:1,b:1", "--start-timeout", 3, "true")
    job.ends_with(2)
    for name in "ab":
        expect(re.search(rf"host {name}: configure: not done after 3 s: a command .* hangs", job.err), job.describe())
    job.leaves_nothing()


@world()
def test_a_configuration_that_ssh_refuses_is_ssh_s_own_sentence():
    configure("NoSuchOption yes")
    refused(Job("-np", 1, "-H", "b:1", "true"), "host b: configure", "config: line 1: Bad configuration option")


@world()
def test_settings_for_interactive_use_do_not_close_the_link():
    for line in (
        "LocalForward 18888 localhost:6006",
        "ExitOnForwardFailure yes",
        "StdinNull yes",
        "ForkAfterAuthentication yes",
        "SessionType none",
        "IgnoreUnknown UseKeychain\n  UseKeychain yes",
    ):
        configure(
            "Host a b",
            f"  {line}",
            "Host a",
            "  ProxyCommand bash -c 'exec 3<>/dev/tcp/10.77.0.1/%p; cat <&3 & cat >&3'",
            "Host b",
            f"  {BY_SYSTEM_SSH}",
        )
        job = Job("-np", 2, "-H", "a:1,b:1", "hostname")
        job.ends_with(0)
        expect(sorted(re.findall(r":([ab])$", job.out, re.M)) == ["a", "b"], f"{line}: {job.describe()}")


@world()
def test_an_ssh_without_session_types_gets_no_setting_that_it_refuses():
    folder = pathlib.Path("/tmp/e2e-bin")
    folder.mkdir()
    # Refuses the same options as OpenSSH before 8.7.
    (folder / "ssh").write_text("""#!/bin/sh
case "$*" in
*SessionType=*|*StdinNull=*|*ForkAfterAuthentication=*) echo "Bad configuration option" >&2; exit 255;;
esac
case " $* " in *" -G "*) /usr/bin/ssh "$@" | grep -viE "^(sessiontype|stdinnull|forkafterauthentication) ";;
*) exec /usr/bin/ssh "$@";; esac
""")
    (folder / "ssh").chmod(0o755)
    configure("Host b", f"  {BY_SYSTEM_SSH}", "  LocalForward 18888 localhost:6006")
    job = Job("-np", 1, "-H", "b:1", "hostname", environment=clean_environment(PATH=f"{folder}:{os.environ['PATH']}"))
    job.ends_with(0)
    expect(job.out.strip().endswith(":b"), job.describe())


@world()
def test_a_host_whose_name_is_a_number():
    with open("/etc/hosts", "a") as names:
        names.write("10.77.0.2 28\n")
    configure("StrictHostKeyChecking accept-new")
    job = Job("-np", 1, "-H", "28:1", "hostname")
    job.ends_with(0)
    expect(job.out.strip().endswith("b"), job.describe())
    # The ssh program itself takes the name for the address 0.0.0.28.
    configure("StrictHostKeyChecking accept-new", f"Host 28\n  {BY_SYSTEM_SSH}")
    refused(Job("-np", 1, "-H", "28:1", "hostname"), "host 28", "takes the name 28 for an address", "HostName")


@world()
def test_a_port_of_one_host_in_a_hostfile():
    restart("b", "Port 2202")
    configure("StrictHostKeyChecking accept-new")
    hostfile = scratch() / "hosts"
    hostfile.write_text("a slots=1\nb slots=1 port=2202\n")
    job = Job("--hostfile", hostfile, "hostname")
    job.ends_with(0)
    expect(sorted(re.findall(r":([ab])$", job.out, re.M)) == ["a", "b"], job.describe())
    refused(Job("--hostfile", hostfile, "--ssh-command", "ssh", "hostname"), "host b has port=2202", "{port}")


@world()
def test_without_an_ssh_program_hosts_are_reached_by_defaults():
    environment = clean_environment(PATH="/nowhere")
    job = Job("--verbose", "-np", 2, "-H", "a:1,b:1", "/bin/true", environment=environment)
    job.ends_with(0)
    expect(job.err.count("no ssh program: hosts are reached by ssh's defaults") == 1, job.describe())
    # Without an ssh program, the launcher does not read the configuration, and is strict by default.
    (SSH / "known_hosts").unlink()
    configure("StrictHostKeyChecking yes")
    refused(
        Job("-np", 1, "-H", "b:1", "/bin/true", environment=environment),
        "host b",
        "its host key is unknown",
        "install OpenSSH's client",
    )


@world()
def test_one_question_serves_all_hosts_unless_a_line_tells_them_apart():
    folder = pathlib.Path("/tmp/e2e-bin")
    folder.mkdir()
    (folder / "ssh").write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\nexec /usr/bin/ssh "$@"\n')
    (folder / "ssh").chmod(0o755)
    environment = clean_environment(PATH=f"{folder}:{os.environ['PATH']}")

    def calls(*lines):
        configure(*lines)
        (folder / "calls").unlink(missing_ok=True)
        Job("-np", 2, "-H", "a:1,b:1", "/bin/true", environment=environment).ends_with(0)
        return len((folder / "calls").read_text().splitlines())

    expect(calls("Host *", "  Compression no") == 1, "one question for both hosts")
    expect(calls("Host other", "  Port 1") == 2, "one question for each host")


@world()
def test_a_host_that_takes_passwords_names_ssh_copy_id():
    restart("b", "Port 2202", "PasswordAuthentication yes", "AuthorizedKeysFile none")
    advice = "run ssh-copy-id -p 2202 root@b once"
    job = Job("-p", 2202, "-np", 1, "-H", "root@b:1", "true")
    refused(job, "host b", "it accepts publickey, password", advice)
    expect(job.err.count("root@b") == 1, job.describe())
    configure(BY_SYSTEM_SSH)
    refused(Job("-p", 2202, "-np", 1, "-H", "root@b:1", "true"), "host b", advice)


@world()
def test_a_host_that_takes_passwords_alone_names_its_sshd_s_setting():
    restart("b", "PasswordAuthentication yes", "PubkeyAuthentication no")
    refused(
        Job("-np", 1, "-H", "b:1", "true"),
        "host b",
        "it accepts password",
        "PubkeyAuthentication yes",
        "ssh-copy-id b once",
    )


def sign(validity):
    subprocess.run(
        ["ssh-keygen", "-q", "-s", "/tmp/authority", "-I", "test", "-n", pathlib.Path.home().name]
        + ["-V", validity, SSH / "id_ed25519.pub"],
        check=True,
    )


@world()
def test_a_key_with_a_certificate_of_an_authority_opens_a_host():
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/tmp/authority"], check=True)
    restart("b", "TrustedUserCAKeys /tmp/authority.pub", "AuthorizedKeysFile none")
    sign("-1h:+1h")
    expect(ssh("b").returncode == 0, "ssh does not log in")
    Job("-np", 2, "-H", "a:1,b:1", "true").ends_with(0)
    Job("-np", 2, "-i", SSH / "id_ed25519", "-H", "a:1,b:1", "true").ends_with(0)
    for words in ("--check-build", "-H", "a:1,b:1"), ("init", "b"):
        Job(*words, cwd=scratch()).ends_with(0)
    sign("-2h:-1h")
    job = Job("-np", 2, "-H", "a:1,b:1", "true")
    refused(job, "host b", f"the certificate {SSH}/id_ed25519-cert.pub has expired at ")
    expect("ssh-copy-id" not in job.err, job.describe())


def wrap_ssh(script):
    """Makes an ssh that runs these lines before a login. Returns the environment with it in PATH."""
    folder = scratch()
    (folder / "ssh").write_text(
        f'#!/bin/sh\ncase " $* " in *" -G "*) exec /usr/bin/ssh "$@";; esac\necho >>{folder}/logins\n{script}\n'
        'exec /usr/bin/ssh "$@"\n'
    )
    (folder / "ssh").chmod(0o755)
    return folder / "logins", clean_environment(PATH=f"{folder}:{os.environ['PATH']}")


@world("a b c")
def test_a_refusal_of_libssh_makes_one_host_try_the_ssh_program_for_all():
    hosts = "a:1,b:1,c:1"
    (SSH / "id_ed25519").rename(SSH / "key")
    logins, environment = wrap_ssh("")
    job = Job("-np", 3, "-H", hosts, "true", environment=environment)
    job.ends_with(2)
    expect(job.err.count("authentication refused for user") == 3, job.describe())
    expect(len(logins.read_text().splitlines()) == 1, "several hosts try the ssh program")
    logins, environment = wrap_ssh(f'set -- -i {SSH}/key "$@"')
    Job("-np", 3, "-H", hosts, "true", environment=environment).ends_with(0)


@world()
def test_another_end_of_ssh_after_a_refusal_is_named_as_well():
    (SSH / "id_ed25519").rename(SSH / "key")
    _, environment = wrap_ssh("echo the site allows no login today >&2; exit 255")
    job = Job("-np", 1, "-H", "b:1", "true", environment=environment)
    refused(job, "host b: .*authentication refused for user .*the site allows no login today")


@world()
def test_a_connection_that_an_sshd_closes_is_named_where_all_keys_must_be_known():
    configure("StrictHostKeyChecking yes", BY_SYSTEM_SSH)
    restart("b", "MaxAuthTries 1", "DenyUsers *")
    (SSH / "id_ed25519").unlink()
    job = Job("-np", 1, "-H", "b:1", "true")
    refused(job, "host b", "Permission denied|Connection closed by|Received disconnect")
    expect("bashrc" not in job.err, job.describe())


def hold_login(name):
    """Occupies the only login that MaxStartups allows."""
    restart(name, "MaxStartups 1:100:1")
    held = socket.create_connection((f"10.77.0.{ord(name) - 96}", 22))
    held.recv(100)
    return held


@world()
def test_a_host_with_too_many_logins_is_tried_again():
    held = hold_login("b")
    job = Job("--verbose", "-np", 1, "-H", "b:1", "true")
    wait_until(lambda: "connect again" in job.err, 30, job.describe)
    held.close()
    job.ends_with(0)


@world()
def test_a_host_that_has_too_many_logins_for_the_time_of_the_start_is_named():
    held = hold_login("b")
    refused(Job("-np", 1, "-H", "b:1", "--start-timeout", 2, "true"), "host b", "MaxStartups")
    held.close()


@world()
def test_one_connection_to_a_jump_host_carries_all_hosts_behind_it():
    names = [f"j{number}" for number in range(32)]
    configure("Host j*", "  HostName 10.77.0.2", "  HostKeyAlias b", "  ProxyJump root@a:22")
    restart("b", "MaxStartups 1000")
    # Two logins at once fail.
    restart("a", "MaxStartups 2:100:2")
    job = Job("-np", len(names), "-H", ",".join(f"{name}:1" for name in names), "hostname")
    job.ends_with(0)
    expect(job.out.count("b\n") == len(names), job.describe())
    job.leaves_nothing()
    job = Job("-H", "j1:1,j2:1", "sh", "-c", "echo up; exec sleep 1000")
    job.wait_for("up", 2)
    job.signal(signal.SIGKILL)
    job.wait()
    job.leaves_nothing()
    wait_until(lambda: not list(pathlib.Path("/tmp").glob("horovod-ssh-*")), 30, "a folder is left")
    configure("Host j*", "  HostName 10.77.0.9", "  ProxyJump a")
    refused(Job("-np", 1, "-H", "j1:1", "true"), "host j1", "its jump host a cannot connect to 10.77.0.9 port 22")
    configure("Host j*", "  HostName 10.77.0.2", "  ProxyJump a", "Host a", "  IdentityFile /nowhere")
    (SSH / "id_ed25519").unlink()
    job = Job("-np", 2, "-H", "j1:1,j2:1", "true")
    job.ends_with(2)
    expect(job.err.count("ssh cannot reach its jump host a: ") == 2, job.describe())


def start_file(text):
    """Writes the .bashrc of host b, which bash reads for commands by ssh."""
    home = pathlib.Path.home().relative_to("/")
    (pathlib.Path(f"/proc/{host.pid_of('b')}/root") / home / ".bashrc").write_text(text)


@world()
def test_an_error_names_the_start_files_of_a_login_shell_that_exits():
    start_file("exit 0\n")
    refused(Job("-np", 1, "-H", "root@b:1", "true"), "host b", "~/.bashrc", "run 'ssh root@b true' to see it")
    start_file("exit 3\n")
    refused(Job("-np", 1, "-H", "root@b:1", "true"), "host b", "exit code 3", "~/.bashrc")


@world()
def test_an_error_names_the_start_files_of_a_login_shell_that_waits_for_input():
    start_file("sleep 1000\n")
    refused(
        Job("-np", 1, "-H", "b:1", "--start-timeout", 10, "true"),
        "host b: send agent",
        "~/.bashrc",
        "wait for input",
        "run 'ssh b true' to see it",
    )


if __name__ == "__main__":
    main()
