#!/usr/bin/python3 -B
"""Writes stub libraries in place of the 2 GB of CUDA libraries that a torch wheel needs, so that torch can be imported
on a machine without CUDA.

cuda_stand_ins.py FOLDER     (site-packages/torch/lib)

Each function of a stub returns cudaErrorNoDevice, so torch finds no GPU. The script also removes torch's requirements
of the real libraries, so that pip can install packages next to torch.
"""

import pathlib
import re
import subprocess
import sys

# The driver gets no stub: torch and other packages open it when a program asks for a GPU.
LIBRARY = re.compile(r"lib(cu(?!da\.)|nv|nccl)")
FUNCTION = re.compile(r"_*(cu|nv|nccl)")
# Functions that run while a library is loaded, or that return a version.
RETURN_ZERO = re.compile(r"_*cudaRegister|ncclGetVersion")
RETURN_TEXT = re.compile(r"cudaGetError(Name|String)")
NO_DEVICE = 100


def read(option, file):
    return subprocess.run(["readelf", "-W", option, file], stdout=subprocess.PIPE, text=True, check=True).stdout


def needs(files):
    """Returns the missing libraries: the functions of each, and the name of its version."""
    libraries, versions, functions = set(), {}, {}
    for file in files:
        libraries.update(filter(LIBRARY.match, re.findall(r"\(NEEDED\).*\[(.*)\]", read("--dynamic", file))))
        for line in read("--version-info", file).splitlines():
            library = re.search(r"File: (\S+)", line)
            if library:
                of = library[1]
            version = re.search(r"Name: (\S+)  Flags", line)
            if version and LIBRARY.match(of):
                versions[version[1]] = of
        for name, version in re.findall(r" UND (\w+)(?:@(\S+))?", read("--dyn-syms", file)):
            if FUNCTION.match(name):
                functions[name] = version
    # Unversioned libraries may have each other's functions: the loader searches all of them.
    places = {library: [] for library in libraries}
    for name, version in functions.items():
        places[versions.get(version, "") or next(one for one in sorted(libraries) if "cudart" in one)].append(name)
    return places, {library: version for version, library in versions.items()}


def function(name):
    if RETURN_TEXT.match(name):
        return f'const char* {name}(int error) {{ return "no CUDA: a stand-in"; }}\n'
    return f"long {name}(void) {{ return {0 if RETURN_ZERO.match(name) else NO_DEVICE}; }}\n"


def write(path, functions, version):
    script = path.with_suffix(".map")
    script.write_text(f"{version} {{ global: *; }};\n", encoding="utf-8")
    flags = ["-w", "-shared", "-fPIC", f"-Wl,-soname,{path.name},--version-script={script}"]
    source = "".join(map(function, sorted(functions)))
    subprocess.run(["gcc", *flags, "-o", path, "-xc", "-"], input=source, text=True, check=True)
    script.unlink()


def require_no_cuda(site):
    for about in site.glob("torch-*.dist-info/METADATA"):
        lines = about.read_text(encoding="utf-8").splitlines(keepends=True)
        rest = [line for line in lines if not re.match(r"Requires-Dist: (nvidia-|cuda-|triton)", line)]
        about.write_text("".join(rest), encoding="utf-8")


def main(folder):
    folder = pathlib.Path(folder)
    require_no_cuda(folder.parents[1])
    places, versions = needs(folder.glob("lib*.so*"))
    made = [library for library in sorted(places) if not (folder / library).exists()]
    for library in made:
        write(folder / library, places[library], versions.get(library, library))
    size = sum((folder / library).stat().st_size for library in made)
    print(f"{len(made)} libraries with {sum(map(len, places.values()))} functions, {size // 1000} kB")


if __name__ == "__main__":
    main(*sys.argv[1:])
