#!/usr/bin/python3 -B
"""--stage-env: hosts install the packages of a file once, without a network; no incomplete environment is used."""

import functools
import hashlib
import http.server
import io
import itertools
import tarfile
import threading
import time
import zipfile

from harness import *

import network
from elastic_jobs import discovery, wait_for_generation

PLACE = "/var/tmp/horovod-0"
RESOLVER = (ROOT / "launcher/reach/resolve_environment.py").read_text(encoding="utf-8")
PYTHON_VERSION = subprocess.run([PYTHON, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[1]
INSTALLERS = os.environ.get("HVD_TEST_INSTALLERS", "")
TRAIN = """import subprocess, sys, tiny
print("tiny", tiny.version, sys.prefix, subprocess.check_output(["tiny-says"], text=True).strip(), flush=True)
"""
# Builds a wheel like the build backend of a package.
BACKEND = """import zipfile
def build_wheel(folder, settings=None, metadata=None):
    with zipfile.ZipFile(folder + "/built-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("built.py", "value = 7")
        wheel.writestr("built-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: built\\nVersion: 1.0\\n")
        wheel.writestr("built-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("built-1.0.dist-info/RECORD", "")
    return "built-1.0-py3-none-any.whl"
"""


def write_wheel(folder, version, more="", about=""):
    """Makes a package with a module, a program and a file next to the interpreter."""
    files = {
        "tiny/__init__.py": f"version = '{version}'\ndef say():\n    print('said')\n{more}",
        f"tiny-{version}.data/scripts/tiny-script": "#!python\nimport tiny\nprint(tiny.version)\n",
        f"tiny-{version}.data/data/share/tiny.txt": "data",
        f"tiny-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n{about}",
        f"tiny-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"tiny-{version}.dist-info/entry_points.txt": "[console_scripts]\ntiny-says = tiny:say\n",
        f"tiny-{version}.dist-info/RECORD": "",
    }
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"tiny-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)


def project(code=TRAIN, requirements="tiny==1.0"):
    """Makes a script and its requirements that only the launcher's machine has."""
    folder = scratch()
    write_wheel(folder / "wheels", "1.0")
    (folder / "train.py").write_text(code)
    require(folder, requirements)
    return folder


def require(folder, requirements):
    (folder / "requirements.txt").write_text(f"--no-index\n--find-links wheels\n{requirements}\n")


def alone(folder, **variables):
    """Returns the environment of a user without settings for this build."""
    environment = clean_environment(XDG_CACHE_HOME=str(folder / "cache"), **variables)
    del environment["PYTHONPATH"]
    return environment


def start(folder, *flags, hosts="a:1,b:1", packages="requirements.txt", command=("python3", "train.py"), **variables):
    slots = sum(map(int, re.findall(r":(\d+)", hosts)))
    words = ["-np", slots, "-H", hosts, "--independent", "--stage", "train.py", "--stage-env", packages]
    return Job(*words, *flags, *command, cwd=folder, environment=alone(folder, **variables))


def write_environment(folder):
    """Makes an environment like `uv venv --relocatable`, with the package and this machine's other packages."""
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", "--system-site-packages", folder], check=True)
    [site] = folder.glob("lib/python3*/site-packages")
    with zipfile.ZipFile(folder.parent / "wheels" / "tiny-1.0-py3-none-any.whl") as wheel:
        wheel.extractall(site)
    program = folder / "bin" / "tiny-says"
    program.write_text("#!/bin/sh\necho said\n")
    program.chmod(0o755)
    settings = folder / "pyvenv.cfg"
    settings.write_text(settings.read_text() + "relocatable = true\n")
    return settings


def on(name, script, *words):
    done = run_to_end([HOSTS, "exec", name, "sh", "-c", script, "sh", *words], cwd="/")
    expect(done.returncode == 0, f"{name}: {script}: {done.stdout}{done.stderr}")
    return done.stdout.strip()


def kept(name, place=PLACE):
    return on(name, f"ls {place} 2>/dev/null | grep -v lock || true").split()


def runs(job, size, version="1.0", place=PLACE):
    job.ends_with(0)
    found = re.findall(r"tiny (\S+) (\S+) said", job.out)
    expect(
        len(found) == size
        and all(each == version and home.startswith(f"{place}/horovod-environment-") for each, home in found),
        job.describe(),
    )


@world("a b", "--bare")
def test_hosts_install_a_file_of_requirements_once():
    folder = project()
    job = start(folder)
    runs(job, 2)
    one_sentence(
        job,
        r"^the ranks on hosts a, b use the environment of requirements.txt \(1 package\), sent there now "
        r"\([0-9.]+ MB\)$",
    )
    job.leaves_nothing()
    [name] = kept("a")
    expect(kept("b") == [name], f"{kept('b')}")
    # Scripts, data and Python's generated programs contain the environment's path.
    home = f"{PLACE}/{name}"
    expect(
        on("a", f"{home}/bin/tiny-script; cat {home}/share/tiny.txt").split() == ["1.0", "data"], "the wheel's parts"
    )
    expect(on("a", f"grep -rIl horovod-installing {home} || true") == f"{home}/pyvenv.cfg", "another place is named")
    # Settings of pip and uv, which may have passwords, stay on this machine.
    secret = "http://user:secret@127.0.0.1:9/simple"
    job = start(folder, command=("sh", "-c", "env; cat /proc/*/environ"), UV_INDEX=secret, PIP_EXTRA_INDEX_URL=secret)
    job.ends_with(0)
    expect("secret" not in job.out + job.err and "PATH=" in job.out, job.describe())
    # The next job sends and resolves nothing: the wheels may be gone.
    shutil.rmtree(folder / "wheels")
    for command in (("train.py",), ("/usr/bin/python3", "train.py"), ("sh", "-c", "exec python train.py")):
        job = start(folder, command=command)
        runs(job, 2)
        one_sentence(job, r"^the ranks on hosts a, b use .* \(1 package\), which an earlier job has sent there$")
    # Another version is another environment, in the user's chosen folder.
    write_wheel(folder / "wheels", "2.0")
    require(folder, "tiny")
    runs(start(folder, "--stage-dir", "/var/tmp/mine"), 2, "2.0", "/var/tmp/mine")
    runs(start(folder, "--remote-init", "export SLURM_TMPDIR=/tmp/job"), 2, "2.0", "/tmp/job")
    # A running job holds a lock that other jobs respect when they clean up.
    (folder / "train.py").write_text(TRAIN + "import time; time.sleep(600)\n")
    job = start(folder, hosts="a:1")
    job.wait_for("tiny")
    [home] = re.findall(r"tiny \S+ (\S+)", job.out)
    locked = on("a", f"flock --exclusive --nonblock {home} true && echo free || echo in use")
    expect(locked == "in use", locked)
    job.signal(signal.SIGTERM)
    job.wait()
    expect(on("a", f"flock --exclusive --nonblock {home} echo free") == "free", "the lock stays")


def resolved(folder, name, cache, glibc="2.36", build="", user=None, python=PYTHON_VERSION, **variables):
    """Returns the output of the resolver, and the hashes of the chosen files."""
    done = subprocess.run(
        [PYTHON, "-I", "-c", RESOLVER, folder / name, python, os.uname().machine, glibc, cache, build],
        stdout=subprocess.PIPE,
        text=True,
        env=alone(folder, **variables),
        user=user,
        check=True,
    )
    return done.stdout, re.findall(r"^([0-9a-f]{64}) ", done.stdout, re.MULTILINE)


def test_the_resolver_takes_what_is_in_the_folder_of_its_file():
    one, other, cache = project(), project(), scratch() / "cache"
    write_wheel(other / "wheels", "1.0", "own = True\n")
    wheel = "wheels/tiny-1.0-py3-none-any.whl"
    digests = [hashlib.sha256((folder / wheel).read_bytes()).hexdigest() for folder in (one, other)]
    for line in ("tiny==1.0", f"./{wheel}", wheel):
        for folder, digest in zip((one, other), digests):
            require(folder, line)
            text, found = resolved(folder, "requirements.txt", cache)
            expect(found == [digest], f"{line} in {folder}: {text}, and not {digest}")
    # A file that the line names has changed.
    write_wheel(one / "wheels", "1.0", "newer = True\n")
    require(one, f"./{wheel}")
    text, found = resolved(one, "requirements.txt", cache)
    expect(found == [hashlib.sha256((one / wheel).read_bytes()).hexdigest()], text)
    # The folder of a killed resolver is removed.
    (cache / "tmpleft").mkdir()
    (one / "damaged.tar.gz").write_bytes(b"\x1f\x8b\x08\0")
    text, _ = resolved(one, "damaged.tar.gz", cache)
    expect(re.fullmatch(r"refused damaged.tar.gz (cannot be used|is no archive of tar): .*\n", text), text)
    expect(not list(cache.glob("tmp*")), "a folder of a killed resolver stays")
    text, _ = resolved(one, "requirements.txt", cache, "2.4000000000")
    expect("another C library" in text, text)


def test_an_archive_stays_as_it_is_and_may_be_removed_after_a_job():
    folder, cache = scratch(), scratch() / "cache"
    (folder / "env").mkdir()
    (folder / "env" / "pyvenv.cfg").write_text("relocatable = true\n")
    archive = folder / "env.tgz"
    subprocess.run(["tar", "czf", archive, "env"], cwd=folder, check=True)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    before = archive.stat()
    # Another user can use it, but not change it.
    folder.chmod(0o755)
    cache.parent.chmod(0o755)
    cache.mkdir(mode=0o700)
    user = 65534 if os.geteuid() == 0 else None
    if user:
        os.chown(cache, user, user)
    answers = set()
    for _ in range(2):
        text, found = resolved(folder, "env.tgz", cache, user=user)
        expect(text.startswith(f"file {archive}\n") and found == [digest], text)
        answers.update(each.stat().st_ino for each in cache.glob("resolved-*"))
    expect(len(answers) == 1, "the second job has not found the answer of the first one")
    expect(archive.stat().st_mtime_ns == before.st_mtime_ns, "the archive has another time")
    # A change that keeps size and time is detected.
    archive.write_bytes(archive.read_bytes()[:-1] + b"\1")
    os.utime(archive, ns=(before.st_atime_ns, before.st_mtime_ns))
    text, found = resolved(folder, "env.tgz", cache, user=user)
    expect(found != [digest], text)
    # A link that an earlier version has left.
    (cache / "wheels" / digest).symlink_to(archive)
    archive.unlink()
    one = project()
    one.chmod(0o755)
    text, found = resolved(one, "requirements.txt", cache, user=user)
    expect(len(found) == 1 and not (cache / "wheels" / digest).is_symlink(), text)


def test_the_resolver_chooses_for_the_whole_version_of_python():
    folder, cache = project(requirements="tiny"), scratch() / "cache"
    first = ".".join(PYTHON_VERSION.split(".")[:2])
    write_wheel(folder / "wheels", "2.0", about=f"Requires-Python: !={first}.0\n")
    for path in installers():
        text, _ = resolved(folder, "requirements.txt", cache, PATH=path)
        expect("tiny-2.0" in text, text)


def test_pip_judges_what_need_not_be_built():
    folder, cache = project(), scratch() / "cache"
    wheel = "wheels/tiny-1.0-py3-none-any.whl"
    write_source(folder / "built")
    write_wheel(folder / "wheels", "1.0", about="Provides-Extra: more\n")
    (folder / "limits.txt").write_text("other @ git+https://127.0.0.1:9/other\n")
    for line in (
        f"./{wheel}[more]",
        f"{wheel}[more]",
        "tiny\ngit+https://127.0.0.1:9/w#egg=w ; sys_platform == 'win32'",
        "tiny\n-c limits.txt",
    ):
        require(folder, line)
        text, found = resolved(folder, "requirements.txt", cache)
        expect(len(found) == 1, f"{line}: {text}")
    write_wheel(folder / "wheels", "1.0", "newer = True\n", about="Provides-Extra: more\n")
    require(folder, f"{wheel}[more]")
    text, found = resolved(folder, "requirements.txt", cache)
    expect(found == [hashlib.sha256((folder / wheel).read_bytes()).hexdigest()], text)
    require(folder, "tiny\n./built ; sys_platform == 'linux'")
    text, _ = resolved(folder, "requirements.txt", cache)
    expect(re.match("refused .*built.*; --allow-build builds a package without a wheel", text), text)
    text, found = resolved(folder, "requirements.txt", cache, build="build")
    expect(len(found) == 2, text)


def path_with_uv():
    if not INSTALLERS:
        raise Skip("HVD_TEST_INSTALLERS names no Python that has uv")
    return f"{pathlib.Path(INSTALLERS).parent}:{os.environ['PATH']}"


def lock_project(folder, path):
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "1"\nrequires-python = ">=3.8"\ndependencies = ["tiny"]\n'
        "[tool.uv]\npackage = false\nno-index = true\nfind-links = ['wheels']\n"
    )
    subprocess.run(["uv", "lock", "--quiet"], cwd=folder, env=alone(folder, PATH=path), check=True)


def test_the_resolver_takes_no_file_with_another_hash():
    folder, cache, path = project(), scratch() / "cache", path_with_uv()
    wheel = folder / "wheels" / "tiny-1.0-py3-none-any.whl"
    right = {kind: hashlib.new(kind, wheel.read_bytes()).hexdigest() for kind in ("sha256", "sha512")}
    other = "0" * 64
    (folder / "bom.txt").write_text(f"\ufefftiny==1.0 --hash=sha256:{right['sha256']}\n")
    (folder / "wants.txt").write_text("\ufeff--no-index --require-hashes\n")
    for line in (
        f"tiny==1.0 --hash=sha256:{right['sha256']} \\\n  --hash=sha256:{other}",
        f"tiny==1.0 --hash=sha512:{right['sha512']}",
        f"--require-hashes\nTiny==1.0 --hash sha256:{right['sha256']}",
        f"./wheels/{wheel.name} --hash=sha256:{right['sha256']}",
        "-r bom.txt",
    ):
        require(folder, line)
        text, found = resolved(folder, "requirements.txt", cache, PATH=path)
        expect(found == [right["sha256"]], f"{line}: {text}")
    (folder / "pins.txt").write_text(f"tiny==1.0 --hash=sha256:{other}\n")
    (folder / "crlf.txt").write_bytes(f"tiny==1.0 \\\r\n  --hash=sha256:{other}\r\n".encode())
    for line, refusal in (
        (f"tiny==1.0 --hash=sha256:{other}", "no file of tiny==1.0 has one of the hashes that requirements.txt "),
        (f"tiny --hash=sha256:{other}", "no file of tiny==1.0 has one of the hashes"),
        ("-r pins.txt", "no file of tiny==1.0 has one of the hashes"),
        ("-c pins.txt\ntiny", "no file of tiny==1.0 has one of the hashes"),
        (f"-r file://{folder}/pins.txt", "no file of tiny==1.0 has one of the hashes"),
        (f"./wheels/{wheel.name} --hash=sha256:{other}", "no file of .*tiny.* has one of the hashes"),
        (f"tiny @ file://{wheel}#sha256={other}", "no file of tiny has one of the hashes"),
        (f"tiny==1.0 --hash=sha512:{other}{other}", "no file of tiny==1.0 has one of the hashes"),
        ("--require-hashes\ntiny==1.0", "requirements.txt has no hash of tiny==1.0, and --require-hashes wants one"),
        ("-r wants.txt\ntiny==1.0", "requirements.txt has no hash of tiny==1.0, and --require-hashes wants one"),
        (f"# a \\\ntiny==1.0 --hash=sha256:{other}", "no file of tiny==1.0 has one of the hashes"),
        (f'tiny==1.0 --hash="sha256:{other}"', "no file of tiny==1.0 has one of the hashes"),
        (f"-r file://{folder}/crlf.txt", "no file of tiny==1.0 has one of the hashes"),
        (f"tiny==1.0 \f --hash=sha256:{other}", "no file of tiny==1.0 has one of the hashes"),
        (f"tiny==1.0 # a \\\n--hash=sha256:{other}", "requirements.txt has a hash that belongs to no package"),
        (f"tiny==1.0 --hash=sha256:{other}-", "requirements.txt has a hash that .* or that is not of the form"),
        (f"-r https://user:secret@127.0.0.1:9/{other}.txt", "https://.* cannot be read"),
    ):
        require(folder, line)
        text, _ = resolved(folder, "requirements.txt", cache, PATH=path)
        expect(re.match(f"refused .*{refusal}", text) and "secret" not in text, f"{line}: {text}")
    require(folder, f"tiny==1.0 --hash=sha256:{other}")
    text, _ = resolved(folder, "requirements.txt", cache, build="build", python="3.8.1", PATH=path)
    expect("no file of tiny==1.0 has one of the hashes" in text, text)
    lock_project(folder, path)
    lock = (folder / "uv.lock").read_text()
    for digest in (right["sha256"], other):
        (folder / "uv.lock").write_text(lock.replace('.whl" }', f'.whl", hash = "sha256:{digest}" }}'))
        text, found = resolved(folder, "uv.lock", cache, PATH=path)
        refusal = "refused no file of tiny==1.0 has one of the hashes that uv.lock names: "
        expect(text.startswith(refusal) if digest == other else found == [digest], text)


class QuietServer(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def test_the_resolver_finds_the_file_of_a_hash_in_any_index():
    folder, cache, path = project(), scratch() / "cache", path_with_uv()
    write_wheel(folder / "others", "1.0", "own = True\n")
    name = "tiny-1.0-py3-none-any.whl"
    wheel = (folder / "wheels" / name).read_bytes()
    right, other = (hashlib.sha256((folder / each / name).read_bytes()).hexdigest() for each in ("wheels", "others"))
    for index, fragment in (
        ("weak", f"wheels/{name}#md5={hashlib.md5(wheel).hexdigest()}"),
        ("one", f"wheels/{name}#sha256={right}"),
        ("two", f"others/{name}#sha256={other}"),
    ):
        (folder / index / "tiny").mkdir(parents=True)
        (folder / index / "tiny" / "index.html").write_text(f'<a href="/{fragment}">{name}</a>')
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietServer, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    for index, refusal in (
        (f"--index-url {address}/weak/", ""),
        (f"--index-url {address}/one/\n--extra-index-url {address}/two/", ""),
        (f"--index-url {address}/two/", "refused no file of tiny==1.0 has one of the hashes"),
    ):
        (folder / "requirements.txt").write_text(f"{index}\ntiny==1.0 --hash=sha256:{right}\n")
        text, found = resolved(folder, "requirements.txt", cache, PATH=path)
        expect(text.startswith(refusal) if refusal else found == [right], f"{index}: {text}")
    server.shutdown()


def write_source(source):
    """A package without a wheel."""
    source.mkdir()
    (source / "backend.py").write_text(BACKEND)
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "built"\nversion = "1.0"\n'
    )
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: built\nVersion: 1.0\n")


def pack_source(folder):
    write_source(folder / "built")
    words = ["tar", "czf", "wheels/built-1.0.tar.gz", "--transform", "s/^built/built-1.0/", "built"]
    subprocess.run(words, cwd=folder, check=True)


def write_native(folder, tag, content=b""):
    """Makes a wheel of a package with a library."""
    with zipfile.ZipFile(folder / f"native-1.0-py3-none-{tag}.whl", "w") as wheel:
        wheel.writestr("native.so", content)
        wheel.writestr("native-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: native\nVersion: 1.0\n")
        wheel.writestr("native-1.0.dist-info/WHEEL", f"Wheel-Version: 1.0\nTag: py3-none-{tag}\n")
        wheel.writestr("native-1.0.dist-info/RECORD", "")


def test_an_archive_without_a_name_has_the_hash_of_its_line():
    folder, cache = project(), scratch() / "cache"
    pack_source(folder)
    archive = folder / "v1.0.tar.gz"
    (folder / "wheels" / "built-1.0.tar.gz").rename(archive)
    for digest, answer in (
        (hashlib.sha256(archive.read_bytes()).hexdigest(), "folder"),
        ("0" * 64, "refused no file of"),
    ):
        line = f"file://{archive}#sha256={digest}"
        for path in installers():
            require(folder, line)
            text, _ = resolved(folder, "requirements.txt", cache, build="build", PATH=path)
            if path != os.environ["PATH"]:  # uv does not compare such a hash
                answer = f"refused requirements.txt has a hash without a name of its package: write NAME @ {line}"
            expect(text.startswith(answer), f"{line}: {text}")


def installers():
    """Yields a PATH without uv, and one with it if uv is installed."""
    return [os.environ["PATH"]] + ([path_with_uv()] if INSTALLERS else [])


def test_a_build_makes_only_what_has_no_wheel_and_for_the_glibc_of_the_hosts():
    machine = os.uname().machine
    newest = int(os.confstr("CS_GNU_LIBC_VERSION").split(".")[1])
    for path in installers():
        folder, cache = project(requirements="tiny\nnative\nbuilt"), scratch() / "cache"
        pack_source(folder)
        write_native(folder / "wheels", f"manylinux_2_{newest}_{machine}")
        write_native(folder / "wheels", f"manylinux_2_17_{machine}")
        text, _ = resolved(folder, "requirements.txt", cache, "2.17", PATH=path)
        expect(re.match("refused .*built.*; --allow-build", text), text)
        text, found = resolved(folder, "requirements.txt", cache, "2.17", "build", PATH=path)
        expect(len(found) == 3 and "native-1.0-py3-none-manylinux_2_17" in text, text)
        expect(re.search(r"^needs \d+ 2\.17$", text, re.MULTILINE), text)
        # A local index's file does not replace a remote index's, which may have other content.
        named = f"native-1.0-py3-none-manylinux_2_{newest}_{machine}.whl"
        (folder / "mine").mkdir(exist_ok=True)
        shutil.copy(folder / "wheels" / named, folder / "mine")
        require(folder, f"built\n./mine/{named}")
        text, _ = resolved(folder, "requirements.txt", cache, "2.17", "build", PATH=path)
        expect(text.startswith("refused") and (path != os.environ["PATH"] or "needs glibc" in text), text)
        # If no package must be built, this machine may have another Python.
        require(folder, "tiny\nnative")
        text, found = resolved(folder, "requirements.txt", cache, "2.17", "build", PATH=path)
        expect(len(found) == 2, text)


def test_a_wheel_of_this_machine_needs_the_glibc_of_its_libraries():
    folder, cache = project(requirements="native"), scratch() / "cache"
    library = pathlib.Path("/bin/ls").read_bytes()
    write_native(folder / "wheels", f"linux_{os.uname().machine}", library)
    versions = run_to_end(["readelf", "-V", "/bin/ls"], check=True).stdout
    needed = max(int(minor) for minor in re.findall(r"Name: GLIBC_2\.(\d+)", versions))
    text, _ = resolved(folder, "requirements.txt", cache)
    expect(re.search(rf"^needs \d+ 2\.{needed}$", text, re.MULTILINE), text)


def test_a_build_makes_repositories_and_directories_for_each_job():
    for path in installers():
        folder, cache = project(), scratch() / "cache"
        source = folder / "built"
        write_source(source)
        git = ["git", "-C", source, "-c", "user.name=a", "-c", "user.email=a@b"]
        for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "first"]):
            subprocess.run([*git, *words], env=alone(folder), check=True)
        wheel = folder / "wheels" / "tiny-1.0-py3-none-any.whl"
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        repository = f"git+file://{source}"  # pip of Debian 12 accepts no name before such an address
        for line in (f"built @ {repository}" if path != os.environ["PATH"] else f"{repository}#egg=built", "./built"):
            require(folder, f"tiny==1.0\n{line}")
            text, _ = resolved(folder, "requirements.txt", cache, PATH=path)
            expect(re.match("refused .*; --allow-build builds a package without a wheel on", text), text)
            text, found = resolved(folder, "requirements.txt", cache, build="build", PATH=path)
            expect(digest in found and len(found) == 2 and "built-1.0-py3-none-any.whl" in text, text)
        expect(not list(cache.glob("resolved-*")), "an answer is kept")


@world("a", "--bare")
def test_uv_locks_a_project():
    """Runs the command of docs/environments.md too."""
    path = path_with_uv()
    folder = project()
    lock_project(folder, path)
    for name in ("uv.lock", "pyproject.toml", "requirements.txt"):
        runs(start(folder, hosts="a:1", packages=name, PATH=path), 1)
    require(folder, "tiny @ ./wheels/tiny-1.0-py3-none-any.whl")
    runs(start(folder, hosts="a:1", PATH=path), 1)


def test_pip_resolves_what_uv_cannot():
    """uv reads no pip.conf."""
    folder, cache = project(), scratch() / "cache"
    (folder / "requirements.txt").write_text("tiny==1.0\n")
    (folder / "pip.conf").write_text(f"[global]\nno-index = true\nfind-links = {folder / 'wheels'}\n")
    variables = {"PATH": path_with_uv(), "UV_OFFLINE": "1"}
    digest = hashlib.sha256((folder / "wheels/tiny-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    text, found = resolved(folder, "requirements.txt", cache, PIP_CONFIG_FILE=str(folder / "pip.conf"), **variables)
    expect(found == [digest], text)
    text, found = resolved(folder, "requirements.txt", cache, PIP_NO_INDEX="1", **variables)
    expect(re.search("No matching distribution found for tiny==1.0.*; uv says before: .*tiny", text), text)


def test_pip_takes_no_package_that_uv_leaves_to_its_own_index():
    """uv takes a package from the first index that has it, pip the newest version of any index."""
    folder, cache = project(), scratch() / "cache"
    write_wheel(folder / "wheels", "2.0")
    for index, version in (("own", "1.0"), ("public", "2.0")):
        name = f"tiny-{version}-py3-none-any.whl"
        (folder / index / "tiny").mkdir(parents=True)
        (folder / index / "tiny" / "index.html").write_text(f'<a href="/wheels/{name}">{name}</a>')
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietServer, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    places = f"--index-url {address}/public/\n--extra-index-url {address}/own/"
    (folder / "requirements.txt").write_text(f"{places}\ntiny==2.0\n")
    text, found = resolved(folder, "requirements.txt", cache, PATH=path_with_uv())
    expect(not found and text.startswith("refused requirements.txt cannot be resolved"), text)
    server.shutdown()


@world("a", "--bare")
def test_a_damaged_or_foreign_environment_is_not_used():
    folder = project()
    runs(start(folder, hosts="a:1"), 1)
    [name] = kept("a")
    home = f"{PLACE}/{name}"
    module = f"{home}/lib/python3.*/site-packages/tiny/__init__.py"
    for damage in (
        f"rm {module}",
        f"cp /dev/null {module}",
        f"chmod 777 {home}",
        f"chown 12345 {home}",
        f"rm {home}/bin/python3",
    ):
        on("a", damage)
        job = start(folder, hosts="a:1")
        runs(job, 1)
        one_sentence(job, "sent there now")
        expect(kept("a") == [name], f"{damage}: {kept('a')}")
    # Two jobs that install at the same time use one environment.
    on("a", f"rm -r {home}")
    for job in [start(folder, hosts="a:1") for _ in range(2)]:
        runs(job, 1)
    expect(kept("a") == [name], f"{kept('a')}")
    # An agent that takes long to check the files still answers the launcher.
    on("a", f"rm {home}/sizes; mkfifo {home}/sizes")
    job = start(folder, "--host-timeout", 2, hosts="a:1")
    for _ in range(2):  # the agent checks before the transfer, and before it replaces the old files
        on("a", f"exec 3>{home}/sizes; sleep 4")
        time.sleep(1)
    runs(job, 1)
    one_sentence(job, "sent there now")
    # An environment in use is not replaced.
    (folder / "train.py").write_text(TRAIN + "import time; time.sleep(600)\n")
    user = start(folder, hosts="a:1")
    user.wait_for("tiny")
    on("a", f"rm {module}")
    (folder / "train.py").write_text(TRAIN)
    job = start(folder, hosts="a:1")
    job.ends_with(2)
    one_sentence(
        job,
        rf"^host a: prepare: no directory there .*\({home} is damaged, and a running job uses it: end that job first\)",
    )
    expect(user.process.poll() is None, user.describe())
    user.signal(signal.SIGTERM)
    user.wait()
    # The remains of a killed job are removed.
    on("a", f"mkdir {PLACE}/horovod-installing-0; touch -d '2 hours ago' {PLACE}/horovod-installing-0; rm -r {home}")
    runs(start(folder, hosts="a:1"), 1)
    expect(kept("a") == [name], f"{kept('a')}")
    # The hash reveals a changed wheel in the cache.
    on("a", f"rm -r {home}")
    [wheel] = (folder / "cache" / "horovod" / "wheels").iterdir()
    content = bytearray(wheel.read_bytes())
    content[-1] ^= 1
    wheel.write_bytes(content)
    job = start(folder, hosts="a:1")
    job.ends_with(2)
    one_sentence(
        job,
        "^host a: prepare: --stage-env: tiny-1.0-py3-none-any.whl has changed since it was resolved: remove /",
    )
    wait_until(lambda: not kept("a"), PROMPT, lambda: f"{kept('a')}")


@world("a", "--bare")
def test_a_restart_gets_the_same_files():
    code = """import os, time, tiny
print("tiny is", getattr(tiny, "age", "as it was"), flush=True)
while os.environ["HOROVOD_GENERATION"] == "0":
    if os.path.exists("/var/tmp/go"):
        raise SystemExit(1)
    time.sleep(0.05)
"""
    folder = project(code, "./wheels/tiny-1.0-py3-none-any.whl")
    job = start(folder, "--max-restarts", "1", hosts="a:1")
    job.wait_for("tiny is as it was")
    write_wheel(folder / "wheels", "1.0", "age = 'newer'\n")
    on("a", "touch /var/tmp/go")
    job.ends_with(0)
    expect(job.out.count("tiny is as it was") == 2, job.describe())
    on("a", "rm /var/tmp/go")
    job = start(folder, hosts="a:1")
    job.wait_for("tiny is newer")
    on("a", "touch /var/tmp/go")
    job.ends_with(1)


@world("a b", "--bare")
def test_an_environment_that_cannot_be_had_is_one_sentence():
    # A host that waits for another host's request does not use up the time limit.
    job = start(
        project(), "--remote-init", "case $(hostname) in b) sleep 600;; esac", "--start-timeout", "4", hosts="a:1,b:1"
    )
    job.ends_with(2)
    one_sentence(job, "^host b: prepare: not done after 4 s")
    folder = project(requirements="tiny==3.0")
    job = start(folder)
    job.ends_with(2)
    one_sentence(
        job,
        "^host [ab]: prepare: --stage-env: requirements.txt cannot be resolved for "
        r"Python 3\.\d+\.\d+ on \S+ with glibc 2\.\d+: ",
        "tiny==3.0",
    )
    # The password of an index stays on this machine.
    require(folder, "--extra-index-url http://user:secret@127.0.0.1:9/simple\ntiny==3.0")
    job = start(folder, hosts="a:1", PIP_RETRIES="0")
    job.ends_with(2)
    one_sentence(job, "tiny==3.0")
    expect("secret" not in job.out + job.err, job.describe())
    job = start(folder, hosts="a:1", PIP_RETRIES="0", PIP_INDEX_URL="http://user:se/cr@et@127.0.0.1:9/simple")
    job.ends_with(2)
    expect("cr@et" not in job.out + job.err, job.describe())
    # Another user could plant wheels.
    (folder / "cache").chmod(0o777)
    job = start(folder, hosts="a:1")
    job.ends_with(2)
    one_sentence(job, "cache is writable by others.*: chmod go-w /.*/cache, or name another folder by XDG_CACHE_HOME$")
    (folder / "cache").chmod(0o700)
    # A package without a wheel.
    pack_source(folder)
    require(folder, "tiny\nbuilt")
    job = start(folder, hosts="a:1")
    job.ends_with(2)
    one_sentence(job, "built.*; --allow-build builds a package without a wheel on this machine$")
    (folder / "train.py").write_text("import built\nprint('built', built.value)\n")
    job = start(folder, "--allow-build", hosts="a:1")
    job.ends_with(0)
    expect("built 7" in job.out, job.describe())
    # No folder of host b can hold it.
    on("b", "mount -t tmpfs -o noexec none /var/tmp; mkdir /tmp/full; mount -t tmpfs -o size=4k none /tmp/full")
    job = start(folder, "--allow-build", hosts="b:1")
    job.ends_with(2)
    one_sentence(
        job,
        r"^host b: prepare: no directory there can keep the environment of --stage-env \(.*noexec.*\): "
        "name a directory of this host with free space by --stage-dir$",
    )
    job = start(folder, "--allow-build", "--stage-dir", "/tmp/full", hosts="b:1")
    job.ends_with(2)
    one_sentence(job, r"^host b: prepare: .* has \d+ MiB free of the \d+ MiB that it needs")
    # Hosts with another C library or processor, or with different Pythons.
    on("b", "mount -t tmpfs none /usr/local/bin; umount /var/tmp")

    def answer_as(python, machine, libc):
        text = f"#!/bin/sh\nprintf 'Python {python}\\nmachine {machine}\\nglibc {libc}\\n'\n"
        on("b", 'printf %s "$1" >/usr/local/bin/python3; chmod +x /usr/local/bin/python3', text)

    for answers, sentence in (
        (("3.11.2", "x86_64", "none"), "the hosts have another C library than glibc, for which it chooses no wheels"),
        (("3.11.2", "riscv64", "2.36"), r"for Python 3.11.2 on riscv64 with glibc 2.36: "),
    ):
        answer_as(*answers)
        require(folder, "native")
        job = start(folder, hosts="b:1")
        job.ends_with(2)
        one_sentence(job, "^host b: prepare: --stage-env: .*" + sentence)
    # Files for the oldest Python and glibc, whichever host requests them first.
    oldest = re.sub(r"\d+$", "0", PYTHON_VERSION)
    answer_as(oldest, os.uname().machine, "2.17")
    job = start(folder)
    job.ends_with(2)
    one_sentence(job, f"for Python {oldest} on .* with glibc 2.17: .*; host b has the oldest glibc$")
    answer_as(PYTHON_VERSION, os.uname().machine, "none")
    job = start(folder)
    job.ends_with(2)
    expect(any(re.match(r".* without glibc.*: --stage-env gives", line) for line in job.said()), job.describe())
    answer_as("3.7.1", "x86_64", "2.36")
    require(folder, "tiny")
    job = start(folder, "--allow-build")
    job.ends_with(2)
    differs = r"host [ab]: prepare: it has Python 3\.\d+ on \S+, and host [ab] has Python 3\.\d+ on \S+: --stage-env"
    expect(any(re.match(differs, line) for line in job.said()), job.describe())


@world("a b", "--bare")
def test_a_relocatable_environment_is_sent_as_it_is():
    folder = project()
    settings = write_environment(folder / "env")
    runs(start(folder, packages="env"), 2)
    subprocess.run(["tar", "czf", "env.tgz", "env"], cwd=folder, check=True)
    runs(start(folder, packages="env.tgz"), 2)
    job = start(folder, packages="env.tgz")
    runs(job, 2)
    one_sentence(job, "^the ranks on hosts a, b use the environment of env.tgz, which an earlier job has sent there$")
    # An archive of conda-pack records its path.
    text = settings.read_text()
    settings.unlink()
    (folder / "env" / "conda-meta").mkdir()
    (folder / "env" / "place").write_text("/placeholder\n")
    job = start(folder, packages="env", hosts="a:1")
    job.ends_with(2)
    one_sentence(
        job, "^host a: prepare: --stage-env: env is an environment of conda, which is not relocatable: conda pack -p "
    )
    (folder / "env" / "bin" / "conda-unpack").write_text(
        "from conda_unpack_progress import progressbar\n_prefix_records = [('place', '/placeholder', 'text')]\n"
        "def update_prefix(path, new_prefix, placeholder, mode='text'):\n"
        "    text = open(path).read().replace(placeholder, new_prefix)\n"
        "    open(path, 'w').write(text)\n"
    )
    (folder / "env" / "bin" / "conda_unpack_progress.py").write_text("progressbar = iter\n")
    subprocess.run(["tar", "czf", "conda.tar.gz", "-C", "env", "."], cwd=folder, check=True)
    for sent in ("sent there now", "an earlier job", "sent there now"):
        job = start(
            folder,
            packages="conda.tar.gz",
            hosts="a:1",
            command=("sh", "-c", "cat $VIRTUAL_ENV/place; echo $VIRTUAL_ENV"),
        )
        job.ends_with(0)
        one_sentence(job, sent)
        found = re.findall(rf"{PLACE}/horovod-environment-\w+", job.out)
        expect(len(found) == 2 and found[0] == found[1], job.describe())
        if sent == "an earlier job":
            on("a", f"rm {found[0]}/place")
    # An environment that needs its path, or this machine's Python.
    (folder / "env" / "conda-meta").rmdir()
    (folder / "env" / "bin" / "conda-unpack").unlink()
    settings.write_text(text.replace("relocatable = true", ""))
    job = start(folder, packages="env", hosts="a:1")
    job.ends_with(2)
    one_sentence(
        job, "^host a: prepare: --stage-env: env is an environment that is not relocatable: make it by uv venv "
    )
    settings.write_text(text)
    (folder / "env" / "bin" / "python").unlink()
    (folder / "env" / "bin" / "python").symlink_to("/opt/none/python3")
    job = start(folder, packages="env", hosts="a:1")
    job.ends_with(2)
    one_sentence(job, "cannot be installed: its Python, /opt/none/python3, is not on this host$")
    job = start(folder, packages="train.py", hosts="a:1")
    job.ends_with(2)
    one_sentence(job, "train.py is neither a file of requirements")


@world("a", "--bare")
def test_a_network_that_drops_in_the_middle_leaves_nothing():
    folder = project()
    with zipfile.ZipFile(folder / "wheels" / "tiny-1.0-py3-none-any.whl", "a") as wheel:
        wheel.writestr("tiny/large", os.urandom(300 << 20))
    job = start(folder, "--host-timeout", 3, hosts="a:1")
    wait_until(lambda: any("installing" in each for each in kept("a")), PROMPT, job.describe)
    faults.cut("a", "launcher")
    job.ends_with(2)
    one_sentence(job, "^host a: ")
    faults.heal("a", "launcher")
    wait_until(lambda: not kept("a"), PROMPT, lambda: f"{kept('a')}")
    runs(start(folder, hosts="a:1"), 1)


def enlarge(folder, size):
    """Adds bytes to the wheel that cannot be compressed."""
    with zipfile.ZipFile(folder / "wheels" / "tiny-1.0-py3-none-any.whl", "a") as wheel:
        wheel.writestr("tiny/large", os.urandom(size))


def limit(name, rate):
    """Limits a host's receive rate."""
    port = f"eth0-{host.spec()['names'].index(name)}"
    subprocess.run(["tc", "qdisc", "add", "dev", port, "root", "tbf", *rate.split()], check=True)


def unlimit(name):
    subprocess.run(["tc", "qdisc", "del", "dev", f"eth0-{host.spec()['names'].index(name)}", "root"], check=True)


def sent_by_launcher():
    return int(pathlib.Path(f"/sys/class/net/{network.BRIDGE}/statistics/tx_bytes").read_text())


def warns(job, pattern):
    found = [line for line in job.err.splitlines() if "gets the rest" in line]
    expect(len(found) == 1 and re.search(pattern, found[0]), f"{pattern!r}\n{job.describe()}")


@world("a b c d", "--bare")
def test_hosts_get_an_environment_from_each_other():
    size = 24 << 20
    folder = project()
    enlarge(folder, size)
    before = sent_by_launcher()
    job = start(folder, hosts="a:1,b:1,c:1,d:1")
    runs(job, 4)
    one_sentence(job, "sent there now")
    # The copies of the agent are small.
    sent = sent_by_launcher() - before
    expect(size < sent < 2 * size, f"the launcher has sent {sent} bytes for {size}")
    job.leaves_nothing()
    for name in "abcd":
        expect(len(kept(name)) == 1, f"{name}: {kept(name)}")
        on(name, f"rm -r {PLACE}/*")
    # Hosts pass the files on unencrypted: with --encrypt, the launcher sends all copies.
    before = sent_by_launcher()
    job = start(folder, "--encrypt", hosts="a:1,b:1")
    runs(job, 2)
    expect(sent_by_launcher() - before > 2 * size, "hosts have passed the files on")
    for name in "ab":
        on(name, f"rm -r {PLACE}/*")
    # Without a network between the hosts, the launcher sends all copies.
    for one, other in itertools.combinations("abc", 2):
        faults.cut(one, other)
    before = sent_by_launcher()
    job = start(folder, hosts="a:1,b:1,c:1")
    runs(job, 3)
    warns(
        job,
        "host [abc] gets the rest of the environment of --stage-env from this machine: it reaches host [abc] at none "
        r"of its addresses, port \d+: 10\.77\.0\.\d \(eth0\), ",
    )
    expect(sent_by_launcher() - before > 3 * size, "the launcher has not sent it")
    for one, other in itertools.combinations("abc", 2):
        faults.heal(one, other)


@world("a b c", "--bare")
def test_a_host_that_damages_an_environment_or_is_lost_is_left_out():
    folder = project()
    enlarge(folder, 12 << 20)
    # b gets the file more slowly than a; on a, the file changes meanwhile. Either host may be the first one.
    for _ in range(12):
        limit("b", "rate 10mbit burst 64kb latency 200ms")
        job = start(folder, hosts="a:1,b:1")
        wait_until(lambda: any("installing" in each for each in kept("a")), PROMPT, job.describe)
        time.sleep(2)
        if any("environment" in each for each in kept("a")):
            break
        unlimit("b")
        runs(job, 2)
        for name in "ab":
            on(name, f"rm -r {PLACE}/*")
    on("a", f"echo damaged | dd of=$(echo {PLACE}/horovod-installing-*/tiny*.whl) bs=1 seek=11M conv=notrunc 2>&1")
    runs(job, 2)
    warns(job, "host b gets the rest .*: the file tiny-1.0-py3-none-any.whl that host a has sent differs from its hash")
    for name in "ab":
        expect(len(kept(name)) == 1, f"{name}: {kept(name)}")
        on(name, f"rm -r {PLACE}/*")
    # A host that ends in the middle gets an error about itself alone, and the other hosts leave nothing.
    job = start(folder, hosts="a:1,b:1,c:1")
    wait_until(lambda: any("installing" in each for each in kept("c")), PROMPT, job.describe)
    faults.end("b")
    job.ends_with(2)
    one_sentence(job, "^host b: ")
    expect(not [line for line in job.said() if re.match("host [ac]: ", line)], job.describe())
    for name in "ac":
        wait_until(
            lambda name=name: not any("installing" in each for each in kept(name)), PROMPT, lambda: f"{kept(name)}"
        )


def install(folder, name, content, before=""):
    """Runs the agent's installer on one file of the launcher. `before`: code that runs first."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / name).write_bytes(content)
    (folder / "list").write_text(f"{hashlib.sha256(content).hexdigest()} {len(content)} 644 {name}\n")
    text = (ROOT / "launcher" / "agent" / "preflight" / "install_environment.py").read_text(encoding="utf-8")
    return run_to_end([PYTHON, "-I", "-c", before + text, folder / "final"], cwd=folder)


def wheel_of(name, text=""):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as wheel:
        wheel.writestr(name, text)
    return content.getvalue()


def archive_of(*members):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, kind, link in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode, member.uid = kind, link, 0o4777, 12345
            archive.addfile(member)
    return content.getvalue()


def test_files_that_would_leave_the_environment_are_refused():
    folder = scratch() / "parts"
    programs = "tiny-1.0.dist-info/entry_points.txt"
    for name, text, refusal in (
        ("../out", "", "has a file outside of it: ../out"),
        ("/tmp/out", "", "has a file outside of it: /tmp/out"),
        ("tiny-1.0.data/data/../../out", "", "has a file outside of it"),
        (programs, "[console_scripts]\n../../out = a:b\n", "has an unusable program: ../../out = a:b"),
        (programs, "[console_scripts]\npython3 = a:b\n", "has an unusable program: python3 = a:b"),
        (programs, "[console_scripts]\nx = a;b:c\n", "has an unusable program: x = a;b:c"),
    ):
        done = install(folder, "tiny-1.0-py3-none-any.whl", wheel_of(name, text))
        expect(done.returncode == 1 and f"tiny-1.0-py3-none-any.whl {refusal}" in done.stderr, f"{name}: {done}")
    file, link, hard = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
    for members, refusal in (
        ([("/tmp/out", file, "")], "has a file outside of it: /tmp/out"),
        ([("bin/../../out", file, "")], "has a file outside of it"),
        ([("lib", link, "/tmp")], "has a link out of it: lib to /tmp"),
        ([("lib/a", link, "../../out")], "has a link out of it: lib/a to ../../out"),
        ([("bin/python", link, "/tmp"), ("bin/python/out", file, "")], "has a file outside of it: bin/python/out"),
        ([("bin/python", link, "/tmp/out"), ("bin/python", file, "")], "has a file outside of it: bin/python"),
        ([("bin/python", link, "/tmp/out"), ("a", hard, "bin/python")], "has a link out of it: a to bin/python"),
        ([("a", hard, "/etc/hostname")], "has a link out of it: a to /etc/hostname"),
        ([("b", link, "d"), ("a", link, "b/../../x")], "has a link out of it: a to b/../../x"),
        ([("a", link, "d/b/../../x"), ("d/b", link, "c")], "has a link out of it: d/b to c"),
        ([("a", tarfile.CHRTYPE, "")], "has something that is neither a file nor a directory: a"),
        ([("a", tarfile.FIFOTYPE, "")], "has something that is neither a file nor a directory: a"),
    ):
        done = install(folder, "env.tar", archive_of(*members))
        expect(done.returncode == 1 and f"env.tar {refusal}" in done.stderr, f"{members}: {done}")
    # The archive's owners and modes are ignored, and a link in the place of the file is replaced.
    version = f"lib/python3.{sys.version_info.minor}/a"
    members = [("bin/python", link, sys.executable), (version, file, ""), ("sizes", link, "bin/python")]
    members += [("share", link, "data"), ("bin/x", link, "../share/x")]  # ".." comes before the other link
    done = install(folder, "env.tar", archive_of(*members))
    about = (folder / "files" / version).stat()
    expect(done.returncode == 0, f"{done}")
    expect((about.st_uid, about.st_mode & 0o7777) == (os.geteuid(), 0o755), f"{about}")
    expect((folder / "files" / "sizes").read_text() == f"0 {version}\n", "the sizes")


def test_a_disk_that_becomes_full_is_named_with_a_remedy():
    full = """import errno, os, shutil
def fill(*_):
    raise OSError(errno.{}, os.strerror(errno.{}))
shutil.copyfileobj = fill
"""
    for name, remedy in (("ENOSPC", "; name a directory of this host with free space by --stage-dir"), ("EIO", "")):
        content = wheel_of("tiny.py")
        done = install(scratch() / "parts", "tiny-1.0-py3-none-any.whl", content, full.format(name, name))
        expect(done.returncode == 1 and re.search(rf"^OSError: .*\w{remedy}\n$", done.stderr), f"{done}")


@world("a b", "--bare")
def test_hosts_that_an_elastic_job_adds_and_a_check_use_the_environment():
    folder = project((WORKERS / "elastic_rank.py").read_text())
    write_environment(folder / "env")
    flags = ["--stage", "train.py", "--stage-env", "env"]
    ranks = ["--min-np", 1, *discovery(folder, "a:1"), *flags, "python3", "train.py", 20, "--listen"]
    job = Job(*ranks, cwd=folder, environment=alone(folder))
    wait_for_generation(job, 0, 1)
    discovery(folder, "a:1", "b:1")
    wait_for_generation(job, 1, 2)
    job.ends_with(0)
    for name in "ab":
        expect(
            any(re.match(f"the ranks on host {name} use the environment of env, sent", line) for line in job.said()),
            job.describe(),
        )
    # The check names a Python, and b has another python3.
    on("b", "mount -t tmpfs none /usr/local/bin; ln -s /bin/false /usr/local/bin/python3")
    named = f"python{sys.version_info.major}.{sys.version_info.minor}"
    done = run_to_end(
        [LAUNCHER, "--check-build", "-H", "a,b", "--stage-env", "requirements.txt", "--verbose", "--", named],
        cwd=folder,
        env=alone(folder),
    )
    uses = re.search(rf"\[X\] Python: \S+, {PLACE}/horovod-environment-", done.stdout)
    expect(uses and "The hosts agree." in done.stdout, f"{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
