#!/usr/bin/python3 -B
"""packaging/release.sh: its refusals, the ABI that a release must keep, and its checksums.

HVD_TEST_BUILDERS names an interpreter with the packages that packaging/wheel.sh needs.
"""

import hashlib
import urllib.parse

from harness import *

SCRIPT = ROOT / "packaging" / "release.sh"
BUILDERS = os.environ.get("HVD_TEST_BUILDERS", "")


def release(*words, script=SCRIPT, expected=0, seconds=300, **more):
    done = run_to_end([script, *map(str, words)], stdin=subprocess.DEVNULL, timeout=seconds, **more)
    said = done.stdout + done.stderr
    expect(done.returncode == expected, f"exit code {done.returncode}: {words}\n{said}")
    return said


def need_build():
    if not (BUILD / "CMakeCache.txt").exists():
        raise Skip(f"{BUILD} is no build folder")


def tree_with(*names):
    """Makes a repository with these files of this tree and the script, without a commit. Returns its git."""
    tree = scratch() / "tree"
    for name in (*names, "packaging/release.sh"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)

    def git(*words):
        run_to_end(["git", "-c", "user.name=n", "-c", "user.email=e@x", *words], cwd=tree, check=True, text=False)

    git("init", "-q")
    return tree, git


def test_a_tree_without_tag_or_dated_changelog_is_no_release():
    tree, git = tree_with("CMakeLists.txt", "CHANGELOG.md", "CITATION.cff", "debian/changelog")
    version = re.search(r"^project\(horovod VERSION (\S+)", (tree / "CMakeLists.txt").read_text(), re.M)[1]

    def says(sentence, *flags, expected=1):
        said = release(
            *flags, "--only", "tree", tree.parent / "out", script=tree / "packaging/release.sh", expected=expected
        )
        expect(sentence in said, said)
        return said

    git("add", "CMakeLists.txt")
    git("commit", "-qm", "one")
    says("changes that are not committed")
    git("add", ".")
    git("commit", "-qm", "two")
    says(f"no tag v{version} names this commit")
    changelog = tree / "CHANGELOG.md"
    changelog.write_text(re.sub(r"(?m)^## Unreleased$|^## \d.*$", "## Not yet", changelog.read_text(), count=1))
    git("commit", "-qam", "three")
    git("tag", f"v{version}")
    says(f"no section '## {version} - YYYY-MM-DD'")
    rehearsed = says("a release would stop here: CHANGELOG.md", "--rehearse", expected=0)
    expect(rehearsed.count("would stop") == 1, rehearsed)
    changelog.write_text(changelog.read_text().replace("## Not yet", f"## {version} - 2026-12-01"))
    git("commit", "-qam", "four")
    says("no tag")
    git("tag", "-f", f"v{version}")
    expect("release.sh:" not in says("==> tree", expected=0), "a release is refused")
    (tree / "debian/changelog").write_text("horovod (0.1.0-1) unstable; urgency=low\n")
    git("commit", "-qam", "five")
    git("tag", "-f", f"v{version}")
    says("debian/changelog does not begin with version")


def test_the_page_of_a_release_has_the_changes_of_its_version_alone():
    tree, git = tree_with("CMakeLists.txt", "packaging/INSTALL.md.in")
    lists = tree / "CMakeLists.txt"
    lists.write_text(re.sub(r"(?m)^(project\(horovod VERSION )\S+", r"\g<1>1.0.1", lists.read_text()))
    lines = ["## Unreleased", "- later", "## 1.0.10 - 2026-12-02", "- ten", "## 1.0.1 - 2026-12-01", "- one"]
    lines += ["", "Packages", "- two", "## 1.0.0 - 2026-11-01", "- zero"]
    (tree / "CHANGELOG.md").write_text("\n".join(lines))
    git("add", ".")
    git("commit", "-qm", "one")
    out = tree.parent / "out"
    release("--rehearse", "--only", "notes", out, script=tree / "packaging/release.sh")
    changes = (out / "INSTALL.md").read_text().partition("## Changes\n")[2]
    expect(changes == "- one\n\nPackages\n- two\n", changes)


def test_the_page_of_a_release_names_each_file():
    names = """Horovod-VERSION.eb Horovod-VERSION-foss-2024a.eb easystack.yml horovod.spec horovod-VERSION-docs.tar.gz
    horovod-VERSION-linux-x86_64.tar.gz horovod-VERSION-py3-none-any.whl horovod-VERSION-torch1.13.1-py3.11-cpu.oci.tar
    horovod-VERSION-torch1.13.1-py3.11-cpu.txt horovod-VERSION.cdx.json horovod-doc_VERSION-1_all.deb
    horovodrun-VERSION-cp38-abi3-manylinux_2_34_aarch64.whl horovodrun-VERSION-cp38-abi3-manylinux_2_34_x86_64.whl
    horovodrun-VERSION.tar.gz horovodrun-dbgsym_VERSION-1_amd64.deb horovodrun_VERSION-1_amd64.deb
    libhorovod-VERSION.abi libhorovod-dev_VERSION-1_amd64.deb libhorovod1-dbgsym_VERSION-1_amd64.deb
    libhorovod1_VERSION-1_amd64.deb python3-horovod-dbgsym_VERSION-1_amd64.deb python3-horovod_VERSION-1_amd64.deb
    package.py recipe.yaml"""
    version = re.search(r"horovod VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
    names = names.replace("VERSION", version).split()
    out = scratch()
    for name in names:
        (out / name).touch()
    said = release("--rehearse", "--only", "notes", out)
    page = (out / "INSTALL.md").read_text().partition("## Changes")[0]
    missing = [name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", page)]
    expect(not missing and not re.search("@[A-Z_]+@", page), f"{missing}\n{page}")
    expect("would stop" not in said, said)


def test_flags_and_steps_that_do_not_exist_are_refused():
    expect("usage: packaging/release.sh" in release("--bogus", scratch(), expected=2), "no usage")
    expect("there is no step 'wheels'" in release("--only", "tree,wheels", scratch(), expected=1), "no sentence")
    said = release("--rehearse", "--only", "install", scratch(), expected=1)
    expect("name a folder outside of /tmp" in said, said)


def test_a_library_that_lost_a_function_is_refused():
    need_build()
    if not shutil.which("abidiff"):
        raise Skip("abidiff is missing: packaging/packages-test.txt has abigail-tools")
    last, now = scratch(), scratch()
    words = ["--rehearse", "--build", BUILD, "--only", "abi"]
    expect("no earlier ABI" in release(*words, last), "no sentence")
    (dump,) = last.glob("libhorovod-*.abi")
    release(*words, "--last", last, now)
    text = dump.read_text()
    expect("'hvd_poll'" in text, "the dump lacks hvd_poll")
    # First the last release has one function more, then this release.
    dump.write_text(text.replace("hvd_poll", "hvd_pull"))
    said = release(*words, "--last", last, now, expected=1)
    expect("breaks programs that were linked" in said and "hvd_pull" in said, said)
    dump.write_text(re.sub(r".*'hvd_poll'.*\n", "", text))
    release(*words, "--last", last, now)  # one function more than in the last release
    expect("has no libhorovod-VERSION.abi" in release(*words, "--last", scratch(), now, expected=1), "no sentence")


def test_the_site_of_a_release_has_each_page():
    """A browser opens the pages from the unpacked tarball: each link is relative, and leads to a file."""
    if not shutil.which("sphinx-build"):
        raise Skip("sphinx-build is missing: packaging/packages-test.txt has python3-sphinx")
    out, sums = scratch(), []
    for _ in range(2):
        release("--rehearse", "--only", "docs", out)
        (archive,) = out.iterdir()
        sums.append(hashlib.sha256(archive.read_bytes()).hexdigest())
    expect(sums[0] == sums[1], "two runs make different bytes")
    subprocess.run(["tar", "-xzf", archive, "-C", out], check=True)
    site = out / archive.name.removesuffix(".tar.gz")
    pages = {
        str(path.relative_to(ROOT / "docs").with_suffix(".html"))
        for path in (ROOT / "docs").rglob("*.md")
        if path.name != "README.md"
    }
    made = {str(path.relative_to(site)): path for path in site.rglob("*.html")}
    expect("index.html" in made and pages <= set(made), pages - set(made))
    for name, path in made.items():
        for link in re.findall(r'(?:href|src)="([^"#?]+)[^"]*"', path.read_text()):
            if not re.match(r"[a-z]+:|//", link):
                expect((path.parent / urllib.parse.unquote(link)).exists(), f"{name} has no {link}")


def sums_of_a_clone(folder, steps, *flags, **variables):
    """Makes these files in the clone of the folder. Returns the lines of SHA256SUMS."""
    (folder / "tmp").mkdir()
    release(
        "--rehearse",
        *flags,
        "--only",
        f"{steps},sums",
        folder / "out",
        script=folder / "tree/packaging/release.sh",
        seconds=7200,
        # Tarball and wheel share compiled files.
        env={**os.environ, "TMPDIR": str(folder / "tmp"), "BUILD_DIR": str(folder / "tree/build-release"), **variables},
    )
    return set((folder / "out/SHA256SUMS").read_text().splitlines())


def two_clones_agree(steps, *flags, ends):
    """`ends`: the suffixes of the files' names."""
    clones = [scratch() / name for name in ("a", "a-folder-with-a-longer-name")]
    for folder in clones:  # both clones have the same commit, even if a later one exists
        folder.mkdir()
        subprocess.run(["git", "clone", "-q", ROOT, folder / "tree"], check=True)
    first = sums_of_a_clone(clones[0], steps, *flags)
    second = sums_of_a_clone(clones[1], steps, *flags, TZ="Asia/Tokyo")
    print("\n".join(sorted(first)))
    expect(first == second, "two clones make different bytes:\n" + "\n".join(sorted(first ^ second)))
    names = {line.split()[1] for line in first}
    for end in ends:
        expect(any(name.endswith(end) for name in names), f"no {end}: {names}")


def two_clones_compile(steps, *ends):
    """Builds without ccache, which would give the second clone the objects of the first (packaging/release.sh)."""
    if not BUILDERS:
        raise Skip("HVD_TEST_BUILDERS names no Python with the builders of a wheel (tests/run.sh)")
    two_clones_agree(steps, "--python", BUILDERS, ends=ends)


def test_two_clones_make_the_same_packages_of_a_build():
    need_build()
    steps = "tarball,sbom" + (",debian" if shutil.which("lintian") else "")
    two_clones_agree(steps, "--build", BUILD, ends=["x86_64.tar.gz", ".cdx.json"])


def test_two_clones_compile_the_same_wheels_and_tarball():
    two_clones_compile(
        "docs,build,tarball,wheel,recipes,sbom,notes",
        *("docs.tar.gz", "x86_64.tar.gz", "x86_64.whl", "any.whl", ".eb", ".cdx.json", "INSTALL.md"),
    )


def test_two_clones_compile_the_same_debian_packages():
    if not shutil.which("lintian"):
        raise Skip("there is no lintian; packaging/packages-release.txt names it")
    two_clones_compile("debian,abi", "_amd64.deb", "_all.deb", ".abi")


def test_two_clones_compile_the_same_wheel_for_64_bit_arm():
    for program in ("aarch64-linux-gnu-g++", "qemu-aarch64-static"):
        if not shutil.which(program):
            raise Skip(f"there is no {program}; packaging/packages-cross.txt names the packages")
    two_clones_compile("aarch64", "aarch64.whl")


def test_the_sums_of_a_release_find_a_changed_file():
    need_build()
    out = scratch()
    words = ["--rehearse", "--build", BUILD, "--only"]
    said = release(*words, "tarball,recipes,sbom,notes,sums,install", out)
    names = sorted(path.name for path in out.iterdir())
    expect(
        [re.sub(r"-\d.*?(?=[-.][a-z])", "", name) for name in names]
        == [
            "Horovod.eb",
            "INSTALL.md",
            "SHA256SUMS",
            "easystack.yml",
            "horovod-linux-x86_64.tar.gz",
            "horovod.cdx.json",
            "horovod.spec",
        ],
        names,
    )
    names.remove("SHA256SUMS")
    # The release page names exactly the files of the release.
    page = (out / "INSTALL.md").read_text()
    missing = [name for name in names if name not in page and name not in ("INSTALL.md", "easystack.yml")]
    expect(not missing and not re.search(r"@[A-Z_]+@|\.whl|\.deb\b", page), f"{missing}\n{page}")
    expect(
        all(
            f"release would stop here: there is no file {kind}" in said
            for kind in ("horovodrun-", "horovod-doc_", "horovod-*-cpu.oci.tar")
        ),
        said,
    )
    (tarball,) = [name for name in names if name.endswith(".tar.gz")]
    expect(all(name in said for name in names), said)
    expect("there is no sdist, and no packaging/easybuild/Horovod-foss" in said, said)
    # EasyBuild compares this checksum with the tarball's.
    easyconfig, sums = (out / names[0]).read_text(), (out / "SHA256SUMS").read_text()
    checksum = re.search(r"checksums = \['(\w+)'\]", easyconfig)[1]
    expect(f"{checksum}  {tarball}" in sums and "@" not in easyconfig, easyconfig)
    with open(out / tarball, "ab") as file:
        file.write(b"x")
    expect(f"{tarball}: FAILED" in release(*words, "install", out, expected=1), "no sentence")


if __name__ == "__main__":
    main()
