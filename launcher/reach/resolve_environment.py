"""Chooses and fetches the wheels of an environment for the hosts of a job, and prints their names with their hashes.

Arguments: the file or directory of --stage-env; Python, machine and glibc of the hosts; the folder of the cache; and
"build" if a package without a wheel may be built here. Prints "refused SENTENCE", or "folder FOLDER", "needs BYTES
GLIBC" and a line for each file: a wheel, or the archive of an environment. A file in FOLDER has its hash as its name.
An archive of the user stays in its place: "file PATH" is then printed in place of "folder FOLDER".
"""

import collections
import fcntl
import hashlib
import http.client
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
import zipfile

# Options of a requirements file that name package sources.
SOURCES = ("-i", "--index-url", "--pypi-url", "--extra-index-url", "-f", "--find-links", "--no-index", "--trusted-host")
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
# The names of pip's variables, by the name of the same variable of uv.
VARIABLES = {
    "UV_INDEX_URL": "PIP_INDEX_URL",
    "UV_DEFAULT_INDEX": "PIP_INDEX_URL",
    "UV_EXTRA_INDEX_URL": "PIP_EXTRA_INDEX_URL",
    "UV_INDEX": "PIP_EXTRA_INDEX_URL",
    "UV_FIND_LINKS": "PIP_FIND_LINKS",
}
# The newest version of glibc (2.40) for which uv has a platform.
NEWEST_OF_UV = 40
OLDEST_OF_UV = (17, 28, 31)
# The hash option in a requirements line, up to its digits.
HASH = r"""--hash[=\s]\s*["']?(\w+):"""
# Prints the version of a Python and the words that start pip: the pip of this Python, or the pip of new environments.
FIND_PIP = """
import glob, os, sys
try:
    import pip
    words = ["-m", "pip"]
except ImportError:
    import ensurepip
    own = os.path.join(os.path.dirname(ensurepip.__file__), "_bundled", "pip-*.whl")
    words = [(glob.glob(own) or glob.glob("/usr/share/python-wheels/pip-*.whl"))[-1] + "/pip"]
print("%d.%d" % sys.version_info[:2], *words, sep="\\n")
"""


class Refused(Exception):
    """Why an environment cannot be made, in a sentence; and the part of it that pip or uv has printed, or nothing."""

    def __init__(self, sentence, cause=""):
        super().__init__(sentence)
        self.cause = cause


def environment():
    kept = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }
    for name, theirs in VARIABLES.items():
        if name in kept:
            # uv accepts an index as name=URL, pip only as a URL.
            kept.setdefault(theirs, re.sub(r"(^|\s)[\w.-]+=(?=\w+://)", r"\1", kept[name]))
    # Wheels that are built again then have the same bytes, so hosts need not install them again.
    kept.setdefault("SOURCE_DATE_EPOCH", "315532800")
    kept.update(PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1", PIP_QUIET="0")
    return {**kept, "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}


def without_passwords(text):
    return re.sub(r"//[^/\s]+@", "//****@", text)


def cause_of(output):
    """Returns the sentences of pip or uv about the failure, on one line."""
    cause = re.search(r"^\s*(?:cause:|╰─▶)(.*?)(?:\n\s*\n|\Z)", without_passwords(output), re.MULTILINE | re.DOTALL)
    if cause:
        chain = re.sub(r"\s(?:cause:|╰─▶|├─▶)\s", ": ", cause[1].replace("│", " "))
        return " ".join(chain.split()).replace(" : ", ": ").rstrip(".")
    lines = [line.strip() for line in without_passwords(output).splitlines()]
    lines = [line for line in lines if line and not line.startswith(("hint:", "Using ", "Resolved ", "WARNING"))]
    errors = [line.split(":", 1)[1].strip() for line in lines if line.lower().startswith("error:")]
    return "; ".join(errors[-2:] or lines[-2:]) or "no cause was given"


def run(words, folder):
    try:
        return subprocess.run(
            words, cwd=folder, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except OSError as error:
        return subprocess.CompletedProcess(words, 127, "", f"error: {words[0]}: {error.strerror}")


class Target:
    """The hosts' Python and platform."""

    def __init__(self, python, machine, glibc):
        self.python = ".".join(python.split(".")[:2])
        self.full = python  # packages exclude single versions, and X.Y alone would mean X.Y.0
        self.machine = machine
        if not re.fullmatch(r"2\.\d{1,3}", glibc):
            raise Refused("the hosts have another C library than glibc, for which it chooses no wheels: install there")
        self.glibc = int(glibc.split(".")[1])

    def __str__(self):
        return f"Python {self.full} on {self.machine} with glibc 2.{self.glibc}"

    def for_pip(self):
        names = [f"manylinux_2_{minor}_{self.machine}" for minor in range(self.glibc, 4, -1)]
        names += [f"{old}_{self.machine}" for old in ("manylinux2014", "manylinux2010", "manylinux1", "linux")]
        abi = f"cp{self.python.replace('.', '')}"
        words = ["--python-version", self.full, "--implementation", "cp"]
        for each in (abi, "abi3", "none"):
            words += ["--abi", each]
        for name in names:
            words += ["--platform", name]
        return words

    def for_uv(self):
        newest = min(self.glibc, NEWEST_OF_UV)
        if newest < 31:
            newest = max(minor for minor in OLDEST_OF_UV if minor <= max(newest, 17))
        return ["--python-version", self.full, "--python-platform", f"{self.machine}-manylinux_2_{newest}"]


def joined_lines(text):
    """Returns the lines of a requirements file as uv divides them, without comments. A comment ends with its line, even
    after a backslash."""
    line = ""
    for part in re.split(r"\r\n|\r|\n", text):
        part = re.sub(r"(^|[ \t])#.*", "", part)
        line += part[:-1] + " " if part.endswith("\\") else part
        if part.endswith("\\"):
            continue
        if line.strip():
            yield line.strip()
        line = ""
    if line.strip():
        yield line.strip()


def text_of(path):
    """Returns the content of a file of this machine or of a server."""
    if "://" not in path:
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    try:
        with urllib.request.urlopen(path, timeout=60) as answer:
            return answer.read().decode("utf-8-sig")
    except (OSError, ValueError, http.client.HTTPException) as error:
        # The text of the error may contain the password.
        raise Refused(
            f"{without_passwords(path)} cannot be read ({type(error).__name__}): name a file of this machine"
        ) from None


def read_requirements(path, seen, reads_servers, is_constraint=False):
    """Yields (folder, line, is a constraint) for the lines of a requirements file and of the files that it includes."""
    if path in seen:
        return
    seen.add(path)
    folder = os.path.dirname(path)
    for line in joined_lines(text_of(path)):
        yield folder, line, is_constraint
        more = re.match(r"(-r|-c|--requirement|--constraint)[\s=]*(\S+)", line)
        if not more:
            continue
        named = more[2] if "://" in more[2] else os.path.join(folder, more[2])
        if "://" not in named or reads_servers:
            limits = is_constraint or more[1] in ("-c", "--constraint")
            yield from read_requirements(named, seen, reads_servers, limits)


def hashes_of(line):
    """Returns the hashes of a requirements line: of its options, and of an address."""
    found = re.findall(rf"(?:{HASH}|[#&](sha\d+|md5)=)([0-9a-fA-F]+)", line)
    return {f"{option or part}:{digest}".lower() for option, part, digest in found}


def without_hashes(line):
    return re.sub(r"\s*--hash[=\s]\s*\S+", "", line)


def package_of(line):
    """Returns the name of a line's package in the form in which indexes compare names; or an empty text."""
    first = without_hashes(re.sub(r"^(-e|--editable)[\s=]+", "", line)).split(";")[0].strip()
    named = re.match(r"([\w.-]+)\s*(?:\[[^\]]*\])?\s*@", first)
    file = re.sub(r"\s*\[[^\]]*\]$", "", re.split(r"[?#]", first)[0]).rsplit("/", 1)[-1]
    file = re.match(r"(.+?)-\d[^-]*(?:-.*\.whl|\.(?:zip|tar\.\w+|tgz))$", file)
    alone = re.match(r"([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*(?:[=<>!~(]|$)", first)
    found = named or file or alone
    return re.sub(r"[-_.]+", "-", found[1]).lower() if found else ""


def source_of(folder, line):
    """Returns the option of a line that names a source of packages, with an absolute folder; or None."""
    option, _, value = line.replace("=", " ", 1).partition(" ") if line.startswith("--") else line.partition(" ")
    if option not in SOURCES:
        return None
    value = value.strip()
    is_folder = option in ("-f", "--find-links") and "://" not in value
    return f"{option} {os.path.join(folder, value) if is_folder else value}".strip()


def place_of(line):
    """Returns the address or the path of a line, without the name, extras and the text after the address."""
    place = re.sub(r"^(-e|--editable)[\s=]+|^[\w.-]+\s*(\[[^\]]*\])?\s*@\s*", "", without_hashes(line))
    return re.split(r"[\s;#]", re.sub(r"\[[^\]]*\]", "", place))[0]


def is_of_this_folder(line):
    """Returns whether the line names files that may change without a change of the line."""
    place = place_of(line)
    is_file = "://" not in place and re.search(r"\.(whl|zip|tar\.\w+|tgz)$", place)
    is_named = re.match(r"(-e|--editable)\b|\.{0,2}/|\.{1,2}(\[|\s|;|$)|file:", line)
    return bool(is_file or is_named or re.search(r"@\s*(file:|\.{0,2}/)", line))


def package_at_address(line):
    """Returns the name of a package that a line takes from an address or a file; or an empty text."""
    is_option = line.startswith("-") and not line.startswith(("-e", "--editable"))
    has_address = not is_option and ("://" in place_of(line) or is_of_this_folder(line))
    return package_of(line) if has_address else ""


def needed_at_addresses(path):
    """Returns the names of the packages that a wheel needs from an address."""
    with zipfile.ZipFile(path) as wheel:
        about = [name for name in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
        text = "\n".join(wheel.read(name).decode(errors="replace") for name in about)
    return {package_at_address(line) for line in re.findall(r"^Requires-Dist:\s*(.*)", text, re.MULTILINE)}


def is_source(line):
    """Returns whether a package is a repository or a directory, which has no wheel and no hash."""
    place = place_of(line)
    is_repository = re.match(r"(git|hg|svn|bzr)\+", place)
    is_path = place.startswith(("file:", ".", "/")) or line.startswith(("-e", "--editable"))
    return bool(is_repository or (is_path and not re.search(r"\.(whl|zip|tar\.\w+|tgz)$", place)))


# A requirements file, words for pip, options for package sources, the chosen packages if known, and
# the first package that must be built.
Part = collections.namedtuple("Part", "path words places pins source")


def write_lines(folder, lines):
    number, path = tempfile.mkstemp(suffix=".txt", dir=folder)
    with open(number, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    return path


def move_all(files, folder):
    """Moves the files, and removes their folder."""
    for name in os.listdir(files):
        os.replace(os.path.join(files, name), os.path.join(folder, name))
    os.rmdir(files)


class Environment:
    has_copies = True  # the cache has copies of the files

    def __init__(self, source, target, may_build):
        self.source = source
        self.folder = os.path.dirname(source)
        self.target = target
        self.may_build = may_build
        self.uv = shutil.which("uv")
        self.name = os.path.basename(source)
        self.is_kept = True
        self.hashes = {}  # hashes by package, if the file contains hashes
        self.needs_hashes = False
        self.at_addresses = set()  # packages from addresses: an index may have other files of them
        self.first_source = ""  # the first line that must be built
        texts, self.sources = [], []
        if self.name.endswith(".txt") or self.name.endswith(".in"):
            wanted = [os.environ.get(name, "").lower() for name in ("PIP_REQUIRE_HASHES", "UV_REQUIRE_HASHES")]
            self.needs_hashes = any(each in ("1", "true", "yes", "on", "y", "t") for each in wanted)
            for folder, line, is_constraint in read_requirements(source, set(), bool(self.uv)):
                texts.append(line)
                self.take_hashes(line)
                self.at_addresses.add(package_at_address(line))
                self.is_kept = self.is_kept and not is_of_this_folder(line) and not is_source(line)
                # For a line with a marker, pip decides whether the package is needed.
                must_build = is_source(line) and not is_constraint and ";" not in line
                self.first_source = self.first_source or (line if must_build else "")
                place = source_of(folder, line)
                if place:
                    self.sources.append(place)
        else:
            with open(source, encoding="utf-8") as file:
                texts.append(file.read())
        settings = [f"{name}={os.environ[name]}" for name in sorted(os.environ) if name.startswith(("PIP_", "UV_"))]
        # Files with equal text refer to other packages if their folders differ.
        places = self.sources if self.name.endswith((".txt", ".in")) else [self.folder]
        text = "\n".join([str(target), str(may_build), str(bool(self.uv)), *texts, *places, *settings])
        self.key = hashlib.sha256(text.encode()).hexdigest()

    def take_hashes(self, line):
        found = hashes_of(line)
        is_option = line.startswith("-") and not line.startswith(("-e", "--editable"))
        self.needs_hashes = self.needs_hashes or (is_option and "--require-hashes" in line.split())
        # uv would accept the package without its hash.
        parsed = re.findall(rf"{HASH}[0-9a-fA-F]+(?![^\s\"'])", line)
        if line.count("--hash") != (0 if is_option else len(parsed)):
            raise Refused(
                f"{self.name} has a hash that belongs to no package, or that is not of the form --hash=sha256:DIGITS: "
                f"{without_passwords(line)}"
            )
        if found and not is_option:
            package = package_of(line)
            if package:
                self.hashes.setdefault(package, set()).update(found)
            elif self.uv:  # unlike pip, uv checks no hashes
                raise Refused(
                    f"{self.name} has a hash without a name of its package: write NAME @ {without_passwords(line)}"
                )

    def with_own_hashes(self, line):
        """Returns the line of a chosen package with the hashes of the package in the file, if the file has any: pip
        then refuses other files of the package from any index. uv compares no hashes while it chooses, and reads
        of one index alone."""
        own, chosen = self.hashes.get(package_of(line)), without_hashes(line)
        if not own:
            if self.needs_hashes:
                raise Refused(f"{self.name} has no hash of {without_passwords(chosen)}, and --require-hashes wants one")
            return line
        # pip also accepts a hash in the address, but not an md5.
        return " ".join([chosen, *(f"--hash={each}" for each in sorted(own - hashes_of(chosen)))])

    def check_hashes(self, output):
        mismatch = re.search(r"DO NOT MATCH THE HASHES.*\n\s+([^\s@]+)", output)
        if mismatch:
            raise Refused(
                f"no file of {without_passwords(mismatch[1])} has one of the hashes that {self.name} names: the "
                f"package has been changed, or {self.name} is of another one"
            )

    def fail(self, output):
        self.check_hashes(output)
        cause = cause_of(output)
        lacks_wheel = re.search(
            r"No matching distribution|no wheels?|no usable wheels|--only-binary|building", output, re.IGNORECASE
        )
        remedy = "; --allow-build builds a package without a wheel on this machine" if lacks_wheel else ""
        sentence = f"{self.name} cannot be resolved for {self.target}: {cause}{'' if self.may_build else remedy}"
        # uv's preferred index has other versions of the package, and pip would use any index.
        raise Refused(sentence, "" if "--index-strategy" in output else cause)

    def pip(self):
        """Returns the words that start pip, and whether pip's Python has the version of the hosts' Python."""
        for name in (f"python{self.target.python}", "python3"):
            python = shutil.which(name)
            if not python:
                continue
            done = run([python, "-I", "-c", FIND_PIP], "/")
            if done.returncode == 0:
                version, *pip = done.stdout.split("\n")[:-1]
                return [python, *pip], version == self.target.python
        if self.uv:
            return [self.uv, "tool", "run", "--quiet", "pip"], False
        raise Refused(
            f"{self.name} cannot be resolved: this machine has neither uv nor a pip for python{self.target.python} or "
            "python3; install one of them here, the hosts need none"
        )

    def lock(self, work):
        """Returns the packages that uv has chosen for the target: packages from files, which have hashes, and other
        packages."""
        requirements = self.source
        if self.name == "uv.lock":
            requirements = os.path.join(work, "exported.txt")
            words = [self.uv, "export", "--quiet", "--frozen", "--no-header", "--no-emit-workspace", "--no-dev"]
            done = run([*words, "--output-file", requirements], self.folder)
            if done.returncode != 0:
                self.fail(done.stderr)
            text = text_of(requirements)
            for line in joined_lines(text):
                self.take_hashes(line)
            with open(requirements, "w", encoding="utf-8") as file:
                file.write("\n".join([*self.places(), text]))
        locked = os.path.join(work, "locked.txt")
        words = [self.uv, "pip", "compile", "--quiet", requirements, "--no-header", "--no-annotate"]
        words += ["--generate-hashes", *self.target.for_uv(), "--output-file", locked]
        if self.name.endswith(".toml"):  # the project's indexes, for pip
            words += ["--emit-index-url", "--emit-find-links"]
        if self.name == "uv.lock":  # the hashes choose the files, not the order of the indexes
            words += ["--index-strategy", "unsafe-best-match"]
        if not self.may_build:
            words += ["--only-binary", ":all:"]
        done = run(words, self.folder)
        if done.returncode != 0:
            self.fail(done.stderr)
        places, chosen = list(self.places()), []
        for line in joined_lines(text_of(locked)):
            if line.startswith("--") and not line.startswith("--editable"):
                places.append(re.sub(r"^(--find-links )(?!/|\w+://)", rf"\g<1>{self.folder}/", line))
            else:
                chosen.append(self.with_own_hashes(line))
        hashed = [line for line in chosen if not is_source(line)]
        sources = [line for line in chosen if is_source(line)]
        parts = [
            Part(write_lines(work, [*places, *hashed]), ["--no-deps", "--require-hashes"], places, hashed, ""),
            Part(write_lines(work, [*places, *sources]), ["--no-deps"], places, sources, "".join(sources[:1])),
        ]
        return [part for part in parts if part.pins]

    def places(self):
        if self.name != "uv.lock":
            return self.sources
        with open(self.source, encoding="utf-8") as file:
            named = dict.fromkeys(re.findall(r'registry = "([^"]+)"', file.read()))
        folders = [os.path.join(self.folder, each) for each in named if "://" not in each]
        urls = [each for each in named if "://" in each]
        lines = [f"{'--extra-index-url' if at else '--index-url'} {url}" for at, url in enumerate(urls)]
        return [*(lines or ["--no-index"]), *(f"--find-links {folder}" for folder in folders)]

    def fetch(self, work):
        """Returns a folder with the wheels."""
        pip, is_same = self.pip()
        parts = [Part(self.source, [], self.sources, [], self.first_source)]
        if self.uv:
            try:
                parts = self.lock(work)
            except Refused as by_uv:
                if not by_uv.cause or not is_same or pip[0] == self.uv or self.name in ("uv.lock", "pyproject.toml"):
                    raise
                return self.fetch_by_pip(pip, parts, work, by_uv)
        elif self.name in ("uv.lock", "pyproject.toml"):
            raise Refused(f"{self.name} needs uv on this machine (pip install uv); the hosts need none")
        elif not is_same:
            raise Refused(
                f"the hosts have Python {self.target.python}, for which pip resolves only with python"
                f"{self.target.python} on this machine: install that, or uv, here"
            )
        return self.fetch_parts(pip, is_same, parts, work)

    def fetch_by_pip(self, pip, parts, work, by_uv):
        """Fetches by pip after a failure of uv, which reads neither pip.conf nor PIP_*: these may name the index."""
        try:
            return self.fetch_parts(pip, True, parts, work)
        except Refused as by_pip:
            if by_pip.cause in ("", by_uv.cause):
                raise by_uv from None
            raise Refused(f"{by_pip}; uv says before: {by_uv.cause}") from None

    def fetch_parts(self, pip, is_same, parts, work):
        wheels = os.path.join(work, "wheels")
        os.mkdir(wheels)
        for part in parts:
            files = os.path.join(work, "downloaded")
            output = f"error: {part.source} has no wheel" if part.source else self.download(pip, part, files)
            self.check_hashes(output)
            if output and not self.may_build:
                self.fail(output)
            if output and not (is_same and self.target.machine == os.uname().machine):
                raise Refused(
                    f"{self.name} cannot be resolved for {self.target} without a build ({cause_of(output)}), and "
                    "--allow-build builds only for the Python of this machine"
                )
            if output and not part.pins:
                self.build_as_here(pip, part, files)
            elif part.source:
                self.build(pip, part, files)
            elif output:
                self.build_some(pip, part, files, output)
            self.is_kept = self.is_kept and not part.source and not any(map(is_of_this_folder, part.pins))
            move_all(files, wheels)
        return wheels

    def download(self, pip, part, files):
        """Fetches wheels for the target into a new folder. Returns an error text, or an empty text after success."""
        shutil.rmtree(files, ignore_errors=True)
        os.mkdir(files)
        words = ["download", "--only-binary", ":all:", *self.target.for_pip(), *part.words, "--dest", files]
        done = run([*pip, *words, "-r", part.path], self.folder)
        others = [name for name in os.listdir(files) if not name.endswith(".whl")]
        if done.returncode != 0:
            return done.stderr or "error: pip fails"
        # pip stores no file for a package that is a directory.
        names = {package_of(name.split("-")[0]) for name in os.listdir(files)}
        said = re.search(r"^Successfully downloaded (.*)", done.stdout, re.MULTILINE)
        others += [name for name in (said[1].split() if said else ()) if package_of(name) not in names]
        return "".join(f"error: {name} is no wheel\n" for name in others)

    def build(self, pip, part, files, *words):
        done = run([*pip, "wheel", "--wheel-dir", files, *part.words, *words, "--quiet", "-r", part.path], self.folder)
        if done.returncode != 0:
            self.fail(done.stderr)

    def build_some(self, pip, part, files, output):
        """Builds the chosen packages that have no wheel for the target, and fetches the other packages."""
        lacking, others = [], part.pins
        while output:
            found = re.findall(
                r"No matching distribution found for (\S+)|^error: (\S+) is no wheel$", output, re.MULTILINE
            )
            names = {package_of("".join(each)) for each in found}
            more = [pin for pin in others if package_of(pin) in names]
            if not more:
                self.fail(output)
            lacking += more
            others = [pin for pin in others if pin not in more]
            rest = part._replace(path=write_lines(os.path.dirname(files), [*part.places, *others]))
            output = self.download(pip, rest, files) if others else shutil.rmtree(files)
        rest = part._replace(path=write_lines(os.path.dirname(files), [*part.places, *lacking]))
        self.build(pip, rest, files, "--no-binary", ",".join(package_of(pin) for pin in lacking))

    def build_as_here(self, pip, part, files):
        """Builds the packages that have no wheel for this machine. pip chooses the versions for this machine, and may
        choose wheels for a newer glibc than the glibc of the hosts."""
        shutil.rmtree(files, ignore_errors=True)
        self.build(pip, part, files)
        at_addresses = self.at_addresses.union(
            *(needed_at_addresses(os.path.join(files, name)) for name in os.listdir(files))
        )
        for name in os.listdir(files):
            if needed_glibc(name) <= self.target.glibc:
                continue
            package, version = name.split("-")[:2]
            if package_of(package) in at_addresses:
                raise Refused(
                    f"{name}, which {self.name} takes from an address or a file, needs glibc 2.{needed_glibc(name)}, "
                    f"and the hosts have glibc 2.{self.target.glibc}: name a wheel for that"
                )
            line = self.with_own_hashes(f"{package}=={version}")
            path = write_lines(os.path.dirname(files), [*part.places, line])
            one = Part(path, ["--no-deps"], part.places, [line], "")
            again = files + "-again"
            output = self.download(pip, one, again)
            if output:
                self.build_some(pip, one, again, output)
            os.unlink(os.path.join(files, name))
            move_all(again, files)

    def place(self, cache):
        return f"folder {cache}"

    def lines(self, work, cache):
        return keep(self.fetch(work), cache)

    def needs(self, lines, cache):
        size, glibc = 0, 0
        for line in lines:
            digest, packed, _, name = line.split(" ", 3)
            with zipfile.ZipFile(os.path.join(cache, digest)) as wheel:
                size += int(packed) + sum(each.file_size + 4096 for each in wheel.infolist())
                # The tag of a wheel that was built for this machine states nothing about other machines.
                is_own = re.search(r"[-.]linux_", name)
                glibc = max(glibc, glibc_of_libraries(wheel) if is_own else needed_glibc(name))
        return f"needs {size} 2.{glibc}"


def needed_glibc(name):
    """Returns the oldest glibc that the tags in a wheel's name accept; 0: any."""
    minors = [int(minor) for minor in re.findall(r"manylinux_2_(\d+)_", name)]
    minors += [
        minor for old, minor in (("manylinux2014", 17), ("manylinux2010", 12), ("manylinux1_", 5)) if old in name
    ]
    return min(minors, default=0)


def glibc_of_libraries(wheel):
    """Returns the newest glibc of which the programs and libraries of a wheel need a symbol."""
    newest = 0
    for each in wheel.infolist():
        with wheel.open(each) as file:
            if file.read(4) != b"\x7fELF":
                continue
            end = b""
            for block in iter(lambda: file.read(1 << 24), b""):
                found = re.findall(rb"(?<=\0)GLIBC_2\.(\d{1,3})(?=[.\0])", end + block)
                newest = max([newest, *map(int, found)])
                end = block[-32:]
    return newest


def digest_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def keep(wheels, cache):
    """Moves the wheels into the cache. Returns their lines of the list."""
    lines = []
    for name in sorted(os.listdir(wheels)):
        path = os.path.join(wheels, name)
        digest = digest_of(path)
        lines.append(f"{digest} {os.path.getsize(path)} 644 {name}")
        os.utime(path)
        os.replace(path, os.path.join(cache, digest))
    return lines


def kept_answer(path, cache, has_copies):
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
        for line in lines[1:] if has_copies else ():
            digest, size, _ = line.split(" ", 2)
            if os.path.getsize(os.path.join(cache, digest)) != int(size):
                return None
            os.utime(os.path.join(cache, digest))  # in use: see remove_unused
        os.utime(path)
        return lines
    except (OSError, ValueError):
        return None


class Archive:
    """A relocatable environment, as a tar archive of conda-pack or of a directory."""

    is_kept = True

    def __init__(self, source):
        self.source = source
        self.name = os.path.basename(source)
        self.has_copies = os.path.isdir(source)
        about = hashlib.sha256()
        for path in self.paths():
            # An archive is sent as it is; for a link, its target is sent. The files of a directory are copied: their
            # ctime is not compared, since another hard link changes it too.
            status = os.lstat(path) if self.has_copies else os.stat(path)
            changed = status.st_mtime_ns if self.has_copies else status.st_ctime_ns
            about.update(f"{path} {status.st_size} {status.st_mtime_ns} {changed} {status.st_mode}\n".encode())
        self.key = about.hexdigest()

    def paths(self):
        yield self.source
        if os.path.isdir(self.source):
            for folder, folders, names in os.walk(self.source):
                folders[:] = sorted(name for name in folders if name != "__pycache__")
                links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
                for name in sorted(names) + links:
                    yield os.path.join(folder, name)
                if not names and not folders and folder != self.source:
                    yield folder

    def place(self, cache):
        return f"folder {cache}" if self.has_copies else f"file {self.source}"

    def lines(self, work, cache):
        if self.has_copies:
            return keep(self.fetch(work), cache)
        return [f"{digest_of(self.source)} {os.path.getsize(self.source)} 644 {self.name}"]

    def fetch(self, work):
        files = os.path.join(work, "files")
        os.mkdir(files)
        self.check(self.read(os.path.join(self.source, "pyvenv.cfg")), os.listdir(self.source))
        with tarfile.open(os.path.join(files, f"{self.name}.tar.gz"), "w:gz", compresslevel=1) as archive:
            for path in list(self.paths())[1:]:
                archive.add(path, os.path.relpath(path, self.source), recursive=False)
        return files

    def read(self, path):
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except OSError:
            return ""

    def check(self, settings, names):
        if settings and not re.search(r"^relocatable\s*=\s*true", settings, re.MULTILINE):
            raise Refused(
                f"{self.name} is an environment that is not relocatable: make it by uv venv --relocatable, or give "
                "--stage-env a file of its packages, as pip freeze prints them"
            )
        if "conda-meta" in names and "conda-unpack" not in names:
            raise Refused(
                f"{self.name} is an environment of conda, which is not relocatable: conda pack -p {self.source} makes "
                "an archive for --stage-env"
            )
        if not settings and "conda-meta" not in names:
            raise Refused(f"{self.name} is no environment of Python: it has neither pyvenv.cfg nor conda-meta")

    def needs(self, lines, cache):
        """Reads an archive to its end. Returns the line "needs BYTES GLIBC"."""
        size, settings, names = 0, "", set()
        digest, packed, _ = lines[0].split(" ", 2)
        try:
            with tarfile.open(os.path.join(cache, digest) if self.has_copies else self.source) as archive:
                for member in archive:
                    words = os.path.normpath(member.name).split("/")
                    size += member.size + 4096
                    names.update(words[:2] + words[-1:])
                    if words[-1] == "pyvenv.cfg" and len(words) <= 2:
                        settings = archive.extractfile(member).read().decode()
        except tarfile.TarError as error:
            raise Refused(f"{self.name} is no archive of tar: {error}") from None
        self.check(settings, names)
        return f"needs {size + int(packed)} 2.0"


def make_cache(cache):
    """Makes the folder, whose wheels no other user may plant or change."""
    os.makedirs(cache, mode=0o700, exist_ok=True)
    part = os.path.realpath(cache)
    while True:
        about = os.stat(part)
        is_sticky = bool(about.st_mode & stat.S_ISVTX) and part != os.path.realpath(cache)
        others = ("g" if about.st_mode & stat.S_IWGRP else "") + ("o" if about.st_mode & stat.S_IWOTH else "")
        if about.st_uid not in (0, os.geteuid(), os.stat("/").st_uid):
            raise Refused(
                f"{part} belongs to another user, and the wheels would lie below it: name another folder by "
                "XDG_CACHE_HOME"
            )
        if others and not is_sticky:
            own = f"chmod {others}-w {shlex.quote(part)}, or " if about.st_uid == os.geteuid() else ""
            raise Refused(
                f"{part} is writable by others, and the wheels would lie below it: {own}name another folder by "
                "XDG_CACHE_HOME"
            )
        if part == "/":
            return
        part = os.path.dirname(part)


def choose(source, target, may_build):
    if os.path.isdir(source) or source.endswith(ARCHIVES):
        return Archive(source)
    if source.endswith((".txt", ".in")) or os.path.basename(source) in ("uv.lock", "pyproject.toml"):
        return Environment(source, target, may_build)
    raise Refused(
        f"{os.path.basename(source)} is neither a file of requirements (*.txt), uv.lock nor pyproject.toml, and no "
        f"environment ({', '.join(ARCHIVES)} or a directory)"
    )


def remove_unused(cache, wheels):
    """Removes files of a killed resolver, and files that no job has used for 30 days. The caller must hold the lock."""
    for name in os.listdir(cache):
        if name.startswith("tmp"):
            shutil.rmtree(os.path.join(cache, name), ignore_errors=True)
    oldest = time.time() - 30 * 86400
    paths = [os.path.join(cache, name) for name in os.listdir(cache) if name.startswith("resolved-")]
    paths += [os.path.join(wheels, name) for name in os.listdir(wheels)]
    for path in paths:
        try:
            about = os.lstat(path)
            if about.st_mtime < oldest or stat.S_ISLNK(about.st_mode):  # a link that an old version has made
                os.unlink(path)
        except FileNotFoundError:
            pass


def answer(source, target, cache, may_build):
    make_cache(cache)
    environment = choose(source, target, may_build)
    # If several jobs begin at once, one job downloads, and the other jobs then find the files.
    lock = open(os.path.join(cache, "lock"), "w", encoding="utf-8")
    fcntl.flock(lock, fcntl.LOCK_EX)
    wheels = os.path.join(cache, "wheels")
    os.makedirs(wheels, mode=0o700, exist_ok=True)
    remove_unused(cache, wheels)
    resolved = os.path.join(cache, f"resolved-{environment.key}")
    lines = kept_answer(resolved, wheels, environment.has_copies) if environment.is_kept else None
    if not lines:
        with tempfile.TemporaryDirectory(dir=cache) as work:
            lines = environment.lines(work, wheels)
            lines.insert(0, environment.needs(lines, wheels))
            if environment.is_kept:
                os.replace(write_lines(work, lines), resolved)
    return [environment.place(wheels), *lines]


def main():
    source, python, machine, glibc, cache, build = sys.argv[1:]
    source = os.path.normpath(source)
    os.umask(0o077)
    try:
        print("\n".join(answer(source, Target(python, machine, glibc), cache, build == "build")))
    except Refused as why:
        print(f"refused {why}")
    except OSError as error:
        print(f"refused {error.filename or source}: {error.strerror}")
    except Exception as error:  # for example, an archive or wheel is damaged
        cause = f"{type(error).__name__}: {error}".splitlines()[0]
        print(f"refused {os.path.basename(source)} cannot be used: {without_passwords(cause)}")


main()
