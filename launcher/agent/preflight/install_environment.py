"""Makes an environment of the wheels, or of the archive, in the current folder. The argument FOLDER is the
environment's later path.

Needs only Python, and no network. Makes the environment in the subfolder "files". The agent has compared the files with
their hashes, and removes the wheels, which other hosts may still get from the agent.
"""

import configparser
import errno
import io
import os
import re
import runpy
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile

ENVIRONMENT = os.path.abspath("files")
PROGRAM = """#!{python}
import sys
from {module} import {first}
if __name__ == "__main__":
    sys.exit({function}())
"""


def listed():
    with open("list", encoding="utf-8") as file:
        return [line.rstrip("\n").split(" ", 3)[3] for line in file]


def write(path, content, mode):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.lexists(path):
        os.unlink(path)
    with open(path, "wb") as file:
        shutil.copyfileobj(content, file, 1 << 20)
    os.chmod(path, mode)


def is_inside(path):
    return not path.startswith("/") and ".." not in path.split("/")


def place_of(name, site, python):
    """Returns the destination of a wheel's file, and whether the file is a program."""
    parts = name.split("/")
    if not parts[0].endswith(".data") or len(parts) < 3:
        return os.path.join(site, *parts), False
    scheme, rest = parts[1], parts[2:]
    roots = {
        "purelib": site,
        "platlib": site,
        "scripts": os.path.join(ENVIRONMENT, "bin"),
        "data": ENVIRONMENT,
        "headers": os.path.join(ENVIRONMENT, "include", "site", python, parts[0].split("-")[0]),
    }
    if scheme not in roots:
        sys.exit("%s is of an unknown kind" % name)
    return os.path.join(roots[scheme], *rest), scheme == "scripts"


def unpack(wheel, site, final):
    python = "python%d.%d" % sys.version_info[:2]
    programs = ""
    with zipfile.ZipFile(wheel) as archive:
        for each in archive.infolist():
            words = each.filename.split("/")
            if each.is_dir():
                continue
            if not is_inside(each.filename):
                sys.exit("%s has a file outside of it: %s" % (wheel, each.filename))
            path, is_program = place_of(each.filename, site, python)
            is_executable = is_program or bool((each.external_attr >> 16) & stat.S_IXUSR)
            with archive.open(each) as content:
                write(path, content, 0o755 if is_executable else 0o644)
            if is_program:
                name_interpreter(path, final)
            if len(words) == 2 and words[0].endswith(".dist-info") and words[1] == "entry_points.txt":
                programs = archive.read(each).decode()
    add_programs(wheel, programs, final)


def name_interpreter(path, final):
    with open(path, "rb") as file:
        text = file.read()
    first, newline, rest = text.partition(b"\n")
    if first.startswith(b"#!python"):
        with open(path, "wb") as file:
            file.write(("#!%s/bin/python3" % final).encode() + newline + rest)


def add_programs(wheel, text, final):
    sections = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    sections.optionxform = str
    sections.read_string(text)
    for section in ("console_scripts", "gui_scripts"):
        if not sections.has_section(section):
            continue
        for name, value in sections.items(section):
            module, _, function = value.split("[")[0].strip().partition(":")
            function = function.strip()
            words = {"python": final + "/bin/python3", "module": module.strip(), "function": function}
            is_name = re.match(r"(?!python[\d.]*$)[\w.-]+$", name)
            if not is_name or not re.match(r"[\w.]+ [\w.]+$", words["module"] + " " + function):
                sys.exit("%s has an unusable program: %s = %s" % (wheel, name, value))
            program = PROGRAM.format(first=function.split(".")[0], **words)
            write(os.path.join(ENVIRONMENT, "bin", name), io.BytesIO(program.encode()), 0o755)


def make(final):
    try:
        import venv
    except ImportError:
        sys.exit("the Python there, %s, has no module venv" % sys.executable)
    builder = venv.EnvBuilder(symlinks=True, with_pip=False)
    builder.create(ENVIRONMENT)
    programs = os.path.join(ENVIRONMENT, "bin")
    for name in os.listdir(programs):
        path = os.path.join(programs, name)
        if os.path.islink(path):
            continue
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(ENVIRONMENT, final))


def safe_members(archive, name):
    """Yields the members as files that only this user can change. Refuses a member that would leave the folder."""
    links = set()
    crossed = set()  # path prefixes before a ".." in the targets of earlier links
    for member in archive:
        path = os.path.normpath(member.name)
        parents = [path[:at] for at, letter in enumerate(path) if letter == "/"]
        if not is_inside(path) or not links.isdisjoint(parents):
            sys.exit("%s has a file outside of it: %s" % (name, member.name))
        if member.issym():
            links.add(path)
            target = os.path.normpath(os.path.join(os.path.dirname(path), member.linkname))
            ways = os.path.join(os.path.dirname(path), member.linkname).split("/")
            # If such a prefix is a link, even of a later member, its ".." leads to another folder.
            crossed.update(os.path.normpath("/".join(ways[:n])) for n in range(1, len(ways)) if ".." in ways[n:])
            # The Python of an environment may be a link to a file outside of the environment.
            is_python = re.match(r"([^/]+/)?bin/python[\d.]*$", path)
            if not links.isdisjoint(crossed) or not (is_inside(target) or is_python):
                sys.exit("%s has a link out of it: %s to %s" % (name, member.name, member.linkname))
        elif member.islnk():
            member.linkname = os.path.normpath(member.linkname)
            parts = member.linkname.split("/")
            if not is_inside(member.linkname) or any("/".join(parts[:n]) in links for n in range(1, len(parts) + 1)):
                sys.exit("%s has a link out of it: %s to %s" % (name, member.name, member.linkname))
        elif not member.isfile() and not member.isdir():
            sys.exit("%s has something that is neither a file nor a directory: %s" % (name, member.name))
        elif path in links:
            sys.exit("%s has a file outside of it: %s" % (name, member.name))
        member.name = path
        member.uid, member.gid, member.uname, member.gname = os.geteuid(), os.getegid(), "", ""
        member.mode = member.mode & 0o755 | (0o700 if member.isdir() else 0o600)
        yield member


def unpack_archive(name, final):
    with tarfile.open(name) as archive:
        if hasattr(tarfile, "fully_trusted_filter"):
            archive.extraction_filter = tarfile.fully_trusted_filter
        archive.extractall("unpacked", members=safe_members(archive, name))
    root = "unpacked"
    names = os.listdir(root)
    if len(names) == 1:
        root = os.path.join(root, names[0])
    os.rename(root, ENVIRONMENT)
    programs = os.path.join(ENVIRONMENT, "bin")
    if os.path.exists(os.path.join(programs, "conda-unpack")):
        set_prefix(programs, final)
    python = os.path.join(programs, "python")
    if os.path.islink(python) and not os.path.exists(python):
        sys.exit("its Python, %s, is not on this host" % os.readlink(python))
    if not os.path.exists(os.path.join(programs, "python3")):
        os.symlink("python", os.path.join(programs, "python3"))
    version = "import os, sys; print('python%d.%d' % sys.version_info[:2])"
    found = run([python, "-I", "-c", version])
    if not os.path.isdir(os.path.join(ENVIRONMENT, "lib", found)):
        sys.exit("it was made for another Python than %s on this host, its own" % found)


def set_prefix(programs, final):
    """Does the work of conda-unpack, but for the later path of the environment."""
    sys.path.insert(0, programs)
    try:
        unpacking = runpy.run_path(os.path.join(programs, "conda-unpack"), run_name="unpacking")
        for path, placeholder, mode in unpacking["_prefix_records"]:
            unpacking["update_prefix"](os.path.join(ENVIRONMENT, path), final, placeholder, mode=mode)
    except Exception as error:
        sys.exit("its bin/conda-unpack cannot be run: %s" % describe_error(error))


def run(words):
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    text = done.stdout.decode(errors="replace").strip()
    if done.returncode != 0:
        sys.exit("%s does not run: %s" % (words[0], text[-600:]))
    return text


def describe_error(error):
    text = "%s: %s" % (type(error).__name__, error)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        text += "; name a directory of this host with free space by --stage-dir"
    return text


def describe():
    """Writes the sizes of all files. A later job compares them to detect lost files."""
    lines = []
    for folder, _, names in os.walk(ENVIRONMENT):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path) and "__pycache__" not in folder and "\n" not in path:
                lines.append("%d %s\n" % (os.path.getsize(path), os.path.relpath(path, ENVIRONMENT)))
    write(os.path.join(ENVIRONMENT, "sizes"), io.BytesIO(os.fsencode("".join(sorted(lines)))), 0o644)


def main():
    final = sys.argv[1]
    os.umask(0o077)
    files = listed()
    if len(files) == 1 and not files[0].endswith(".whl"):
        unpack_archive(files[0], final)
    else:
        make(final)
        site = os.path.join(ENVIRONMENT, "lib", "python%d.%d" % sys.version_info[:2], "site-packages")
        for name in files:
            unpack(name, site, final)
    describe()


try:
    main()
except Exception as error:  # one sentence for the user, instead of a traceback
    sys.exit(describe_error(error))
