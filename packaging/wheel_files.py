#!/usr/bin/python3 -B
"""Makes wheels without pip: that of horovodrun from an existing build, and that of horovod from a wheel of horovodrun.

usage: packaging/wheel_files.py horovodrun BUILD_FOLDER OUTPUT_FOLDER [PLATFORM]
       packaging/wheel_files.py horovod HOROVODRUN_WHEEL OUTPUT_FOLDER

The distribution horovod has no modules. It requires horovodrun of its own version with the same extras, and has the
same commands: the original Horovod has a command horovodrun too, and its removal takes the file along. Two runs make
the same bytes (SOURCE_DATE_EPOCH). PLATFORM (default linux_PROCESSOR) is a platform tag.
"""

import base64
import email
import hashlib
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
ABOUT_HOROVOD = """# horovod

This distribution has no modules: it requires `horovodrun` of the same version, which has the package `horovod` and the
launcher. It is another project than Horovod 0.28 of the public index.
"""


def write_wheel(folder, name, version, tag, files, metadata, level=zipfile.ZIP_DEFLATED):
    """Writes a wheel and returns its path. `files`: maps each name to its bytes and its mode."""
    info = f"{name}-{version}.dist-info"
    about = (
        f"Wheel-Version: 1.0\nGenerator: wheel_files.py\nRoot-Is-Purelib: {str(tag.endswith('-any')).lower()}\n"
        f"Tag: {tag}\n"
    )
    files = {
        **dict(sorted(files.items())),
        f"{info}/METADATA": (metadata.encode(), 0o644),
        f"{info}/WHEEL": (about.encode(), 0o644),
    }
    record = "".join(f"{name},sha256={digest(data)},{len(data)}\n" for name, (data, _) in files.items())
    files[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), 0o644)
    date = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", 315532800)), 315532800))[:6]  # ZIP begins in 1980
    path = pathlib.Path(folder) / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", level) as wheel:
        for file, (data, mode) in files.items():
            entry = zipfile.ZipInfo(file, date)
            entry.compress_type = level
            entry.external_attr = (0o100000 | mode) << 16
            wheel.writestr(entry, data)
    return path


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def mode_of(path):
    return 0o755 if os.access(path, os.X_OK) else 0o644


def project_of_horovodrun():
    import tomllib  # requires Python 3.11; the other kind of wheel does not need it

    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def metadata_of_horovodrun(project, version):
    """Returns the fields from pyproject.toml."""
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {version}",
        f"Summary: {project['description']}",
        f"License: {project['license']['text']}",
        f"Requires-Python: {project['requires-python']}",
    ]
    lines += [f"Requires-Dist: {each}" for each in project["dependencies"]]
    for extra, packages in project["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {each}; extra == "{extra}"' for each in packages)]
    lines += ["Description-Content-Type: text/markdown", "", (ROOT / project["readme"]).read_text()]
    return "\n".join(lines)


def entry_points_of(project):
    """Returns the file entry_points.txt."""
    return "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    )


def of_build(build, output, system, level=zipfile.ZIP_DEFLATED):
    """Makes the wheel of horovodrun from the component that pip installs."""
    project = project_of_horovodrun()
    version = re.search(r"^project\(horovod VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
    with tempfile.TemporaryDirectory() as folder:
        prefix = pathlib.Path(folder) / "lib/python3/site-packages"
        subprocess.run(
            ["cmake", "--install", build, "--component", "wheel", "--prefix", prefix],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        places = {
            prefix: "",
            pathlib.Path(folder) / "bin": f"horovodrun-{version}.data/scripts/",
            pathlib.Path(folder) / "share": f"horovodrun-{version}.data/data/share/",
        }
        files = {
            place + str(path.relative_to(top)): (path.read_bytes(), mode_of(path))
            for top, place in places.items()
            for path in top.rglob("*")
            if path.is_file()
        }
        files[f"horovodrun-{version}.dist-info/entry_points.txt"] = (entry_points_of(project).encode(), 0o644)
        metadata = metadata_of_horovodrun(project, version)
        return write_wheel(output, "horovodrun", version, f"cp38-abi3-{system}", files, metadata, level)


def of_wheel(wheel, output):
    """Makes the wheel of horovod, with the version, extras and commands of a wheel of horovodrun."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if re.fullmatch(r"[^/]*\.dist-info/METADATA", each))
        about = email.message_from_bytes(archive.read(name))
        version = about["Version"]
        commands = {
            each.replace("horovodrun-", "horovod-", 1): (archive.read(each), 0o755)
            for each in archive.namelist()
            if "/scripts/" in each
        }
    lines = [
        "Metadata-Version: 2.1",
        "Name: horovod",
        f"Version: {version}",
        *(f"{field}: {about[field]}" for field in ("Summary", "License", "Requires-Python") if about[field]),
        f"Requires-Dist: horovodrun=={version}",
    ]
    for extra in about.get_all("Provides-Extra", []):
        lines += [f"Provides-Extra: {extra}", f'Requires-Dist: horovodrun[{extra}]=={version}; extra == "{extra}"']
    lines += ["Description-Content-Type: text/markdown", "", ABOUT_HOROVOD]
    return write_wheel(output, "horovod", version, "py3-none-any", commands, "\n".join(lines))


def main(kind="", source="", output="", system=None):
    if kind not in ("horovodrun", "horovod") or not output:
        sys.exit(__doc__.partition("\n\n")[2].partition("\n\n")[0])
    os.makedirs(output, exist_ok=True)
    system = system or f"linux_{platform.machine()}"
    print(of_build(source, output, system) if kind == "horovodrun" else of_wheel(source, output))


if __name__ == "__main__":
    main(*sys.argv[1:])
