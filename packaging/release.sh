#!/bin/bash
# Makes the files of a release in one folder, tries them from there, and writes SHA256SUMS.
#
# usage: packaging/release.sh [FLAGS] OUTPUT_FOLDER
#
#   --last FOLDER     the files of the last release, whose ABI the new library must keep
#   --python PYTHON   has what packaging/wheel.sh needs (default: python3)
#   --build FOLDER    take the Debian packages and the tarball from this build, compile nothing, make no wheel
#                     and no image
#   --only STEPS      some of: tree docs build tarball debian wheel aarch64 image recipes sbom abi notes sums install,
#                     with commas
#   --rehearse        accept a tree without a tag and a dated changelog; say what a release would refuse
#
# Run tests/run.sh --release on the tag first. Steps may be repeated: each replaces its own files.
# HVD_TEST_EASYBUILD=PYTHON, which has easybuild and pycodestyle, tries the easyconfigs; without it a release stops.
# BUILD_DIR=FOLDER compiles tarball and wheel there, and again only what has changed since the last time.
# MIRROR='deb URL SUITE COMPONENT' is where the image takes the packages of Debian from.
set -euo pipefail
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }

last='' python=python3 build='' is_rehearsal=0
only=tree,docs,build,tarball,debian,wheel,aarch64,image,recipes,sbom,abi,notes,sums,install
while [[ ${1:-} == --* ]]; do
  case $1 in
    --last) last=$(realpath "${2:?--last needs a folder}"); shift 2;;
    --python) python=${2:?--python needs a program}; shift 2;;
    --build) build=$(realpath "${2:?--build needs a folder}"); shift 2;;
    --only) only=${2:?--only needs steps}; shift 2;;
    --rehearse) is_rehearsal=1; shift;;
    *) usage;;
  esac
done
[[ $# -eq 1 ]] || usage
mkdir -p "$1"
output=$(realpath "$1")
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
version=$(sed -n 's/^project(horovod VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
given_build=$build
build=${build:-${BUILD_DIR:-$PWD/build-release}}
# All dates inside the files are the date of the commit.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
# ccache passes relative paths to the compiler, which -ffile-prefix-map does not match: the bytes would differ.
export CCACHE_DISABLE=1

refuse() { echo "release.sh: $*" >&2; exit 1; }
# Conditions of a release, which a rehearsal only reports.
require() {
  local sentence=$1; shift
  "$@" >/dev/null 2>&1 && return
  ((is_rehearsal)) || refuse "$sentence"
  echo "release.sh: a release would stop here: $sentence" >&2
}
needs() { command -v "$1" >/dev/null || refuse "there is no $1: install Debian's package $2"; }
is_empty() { [[ -z $1 ]]; }
replace() { rm -f "$output"/$1; }

step_tree() {
  require "the tree has changes that are not committed; git status shows them" is_empty "$(git status --porcelain)"
  require "no tag v$version names this commit; git tag -s v$version" \
    git describe --tags --exact-match --match "v$version" HEAD
  require "CHANGELOG.md has no section '## $version - YYYY-MM-DD'; date the section Unreleased" \
    grep -Eq "^## ${version//./\\.} - [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md
  require "debian/changelog does not begin with version $version; use dch" \
    grep -q "^horovod (${version//./\\.}-[0-9]*) " <(head -1 debian/changelog)
  require "CITATION.cff has another version" grep -q "^version: ${version//./\\.}$" CITATION.cff
}

step_docs() {
  needs sphinx-build python3-sphinx
  replace 'horovod-*-docs.tar.gz'
  local name=horovod-$version-docs
  sphinx-build -n -W --keep-going -q -d "$scratch/doctrees" docs "$scratch/$name"
  rm "$scratch/$name/.buildinfo"
  tar -C "$scratch" --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime="@$SOURCE_DATE_EPOCH" \
    -c "$name" | gzip -n >"$output/$name.tar.gz"
}

step_build() {
  [[ -z $given_build ]] || return 0
  # The flags of the preset, and of the wheel.
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DHVD_WERROR=ON -DHVD_PORTABLE=ON -DHVD_STATIC_AGENT=ON \
    -DHVD_REQUIRE_MPI=ON -DBUILD_TESTING=OFF >"$scratch/configured" ||
    { cat "$scratch/configured"; refuse "cmake could not configure $build"; }
  ninja -C "$build"
}

step_tarball() {
  replace 'horovod-*-linux-*.tar.gz'
  packaging/tarball.sh "$build" "$output"
}

step_debian() {
  needs lintian lintian
  replace '*.deb'
  if [[ -n $given_build ]]; then
    packaging/debian.sh "$build" "$scratch/debian" >"$scratch/debian.log" 2>&1 ||
      { cat "$scratch/debian.log"; refuse "no Debian packages"; }
  else
    # Builds the commit in a separate folder: dpkg-buildpackage writes next to it.
    mkdir -p "$scratch/debian/horovod"
    git archive HEAD | tar -x -C "$scratch/debian/horovod"
    (cd "$scratch/debian/horovod" && dpkg-buildpackage -b -us -uc) >"$scratch/debian.log" 2>&1 ||
      { tail -n 50 "$scratch/debian.log"; refuse "dpkg-buildpackage failed"; }
  fi
  # shellcheck disable=SC2054 # the list of levels is one word
  local flags=(--fail-on error,warning)
  # A build outside of Debian has its libraries in lib.
  [[ -z $given_build ]] || flags+=(--suppress-tags arch-dependent-file-not-in-arch-specific-directory
    --suppress-tags pkg-config-unavailable-for-cross-compilation)
  # Tags in debian/*.lintian-overrides, each with its reason, do not count.
  lintian "${flags[@]}" "$scratch"/debian/*.changes ||
    refuse "lintian finds faults in the packages: correct them, or write an override with its reason"
  mv "$scratch"/debian/*.deb "$output"
}

step_image() {
  [[ -z $given_build ]] || return 0
  if ! command -v mmdebstrap >/dev/null || ! command -v umoci >/dev/null; then
    require "there is no image: install Debian's packages mmdebstrap and umoci" false
    return
  fi
  replace 'horovod-*-cpu.*'
  packaging/oci/image.sh "$output" "$output" ${MIRROR:+"$MIRROR"}
}

step_wheel() {
  [[ -z $given_build ]] || return 0
  replace "horovodrun-*_$(uname -m).whl"
  replace 'horovod-*.whl'
  replace "horovodrun-$version.tar.gz"
  packaging/wheel.sh "$output" "$python"
}

# The wheel for 64-bit ARM, cross-built.
step_aarch64() {
  [[ -z $given_build && $(uname -m) != aarch64 ]] || return 0
  if ! command -v aarch64-linux-gnu-g++ >/dev/null || ! command -v qemu-aarch64-static >/dev/null; then
    require "there is no wheel for 64-bit ARM: install the packages of packaging/packages-cross.txt" false
    return
  fi
  replace 'horovodrun-*_aarch64.whl'
  BUILD_DIR=${BUILD_DIR:+$BUILD_DIR-aarch64} packaging/wheel.sh --aarch64 "$output" "$python"
}

# Easyconfigs, the spec, and the packages of Spack and conda, with the version and the checksums of tarball and sdist.
step_recipes() {
  local recipe name sum_of_tarball='' sum_of_sdist=''
  sum_of_tarball=$(sha256sum "$output"/horovod-"$version"-linux-*.tar.gz | cut -d ' ' -f 1)
  if [[ -f $output/horovodrun-$version.tar.gz ]]; then
    sum_of_sdist=$(sha256sum "$output/horovodrun-$version.tar.gz" | cut -d ' ' -f 1)
  fi
  for recipe in packaging/easybuild/*.eb.in packaging/eessi/*.yml.in packaging/rpm/*.spec.in \
    packaging/conda/*.yaml.in packaging/spack/spack_repo/horovodrun/packages/horovodrun/package.py.in; do
    if grep -q @SDIST_SHA256@ "$recipe" && [[ -z $sum_of_sdist ]]; then
      require "there is no sdist, and no $recipe" false
      continue
    fi
    name=$(basename "$recipe" .in)
    [[ $name != Horovod* ]] || name=Horovod-$version${name#Horovod}  # EasyBuild requires this name
    sed "s/@VERSION@/$version/g; s/@TARBALL_SHA256@/$sum_of_tarball/; s/@SDIST_SHA256@/$sum_of_sdist/" \
      "$recipe" >"$output/$name"
  done
}

step_sbom() {
  packaging/sbom.py "$build" >"$output/horovod-$version.cdx.json"
}

# The types and functions of the headers, from the library of the Debian packages, whose debug information is in
# -dbgsym; for a library without it, only the names.
step_abi() {
  needs abidw abigail-tools
  local dump=$output/libhorovod-$version.abi code=0 old library=$build/lib/libhorovod.so.1 debug=()
  local packages=("$output"/libhorovod1_*.deb "$output"/libhorovod1-dbgsym_*.deb)
  if [[ -f ${packages[0]} && -f ${packages[1]} ]]; then
    for deb in "${packages[@]}"; do dpkg-deb -x "$deb" "$scratch/abi"; done
    library=$(ls "$scratch"/abi/usr/lib/*/libhorovod.so.1)
    debug=(--debug-info-dir "$scratch/abi/usr/lib/debug")
  fi
  require "there is no package libhorovod1-dbgsym: the ABI is compared by names alone" test -n "${debug[*]}"
  abidw "${debug[@]}" --headers-dir include/horovod --exported-interfaces-only --no-show-locs --no-corpus-path \
    "$library" >"$dump" || refuse "abidw cannot read $library"
  if [[ -z $last ]]; then
    echo "no --last: there is no earlier ABI to compare with"
    return
  fi
  old=$(ls "$last"/libhorovod-*.abi 2>/dev/null) || refuse "$last has no libhorovod-VERSION.abi"
  abidiff --no-show-locs --no-added-syms "$old" "$dump" || code=$?
  # Exit code of abidiff: bits 1 and 2 are errors; 8 is a removal that breaks programs, 4 a type change that may.
  ((code & 12)) && refuse "the library breaks programs that were linked with $(basename "$old"): restore the" \
    "functions and types above, or raise the number of libhorovod.so.1"
  ((code & 3)) && refuse "abidiff failed"
  return 0
}

# The text of the release's page: how to install each file, and what has changed.
step_notes() {
  local text name pattern file section=$version
  text=$(sed "s/@VERSION@/$version/g" packaging/INSTALL.md.in)
  while read -r name pattern; do
    file=$(cd "$output" && find . -maxdepth 1 -name "$pattern" -printf '%P\n' | LC_ALL=C sort | paste -sd ' ')
    if [[ -n $file ]]; then
      text=${text//@$name@/$file}
    else
      require "there is no file $pattern" false
      text=$(grep -v "@$name@" <<<"$text")
    fi
  done <<END
WHEEL horovodrun-$version-*_$(uname -m).whl
ARM_WHEEL horovodrun-$version-*_aarch64.whl
HOROVOD horovod-$version-py3-none-any.whl
SDIST horovodrun-$version.tar.gz
TARBALL horovod-$version-linux-*.tar.gz
LIBRARY_DEB libhorovod1_*.deb
LAUNCHER_DEB horovodrun_*.deb
PYTHON_DEB python3-horovod_*.deb
DEVEL_DEB libhorovod-dev_*.deb
DOC_DEB horovod-doc_*.deb
DEBUG_DEB *-dbgsym_*.deb
EASYCONFIG Horovod-$version.eb
SOURCE_EASYCONFIG Horovod-$version-foss-*.eb
EASYSTACK easystack.yml
SPEC horovod.spec
SPACK_PACKAGE package.py
CONDA_RECIPE recipe.yaml
IMAGE horovod-*-cpu.oci.tar
IMAGE_LIST horovod-*-cpu.txt
DOCS horovod-$version-docs.tar.gz
SBOM horovod-$version.cdx.json
ABI libhorovod-$version.abi
END
  grep -q "^## ${version//./\\.} - " CHANGELOG.md || section=Unreleased
  { echo "$text"; echo; echo "## Changes"
    awk -v "section=$section" '/^## / {is_in = $2 == section; next} is_in' CHANGELOG.md
  } >"$output/INSTALL.md"
}

step_sums() {
  replace SHA256SUMS
  (cd "$output" && find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' -printf '%P\n' | LC_ALL=C sort |
    xargs -d '\n' sha256sum) >"$scratch/SHA256SUMS"
  mv "$scratch/SHA256SUMS" "$output"
  cat "$output/SHA256SUMS"
}

# The tests take each file from the folder and verify its checksum.
step_install() {
  (cd "$output" && sha256sum --check --quiet SHA256SUMS)
  if [[ -n $given_build ]]; then
    require "without a wheel, the files of the folder are not tried" false
    return 0
  fi
  local code test
  export HVD_BUILD=$build HVD_TEST_RELEASE=$output HVD_TEST_WHEEL=${HVD_TEST_WHEEL:-$(command -v "$python")}
  local lines=the_install_lines_of_the_readme_work_in_a_bare_root_of
  for test in packages_test.py "wheels_test.py ${lines}_debian_12 ${lines}_debian_13 ${lines}_unstable" \
    "kubernetes_test.py the_pods_of_the_indexed_job_train_in_the_image_of_a_release"; do
    code=0
    # shellcheck disable=SC2086 # a file and its tests
    /usr/bin/python3 -B tests/e2e/$test || code=$?
    case $code in
      0) ;;
      77) require "a file was not tried, for the reason behind SKIP above" false;;
      *) refuse "a file of the folder does not work, by the test above";;
    esac
  done
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for step in ${only//,/ }; do
  declare -F "step_$step" >/dev/null || refuse "there is no step '$step'"
done
# Hosts created by the tests have their own /tmp.
[[ ,$only, != *,install,* || -n $given_build || $output/ != /tmp/* ]] ||
  refuse "tests cannot read $output: name a folder outside of /tmp, or leave out the step 'install'"
for step in tree docs build tarball debian wheel aarch64 image recipes sbom abi notes sums install; do
  [[ ,$only, == *,$step,* ]] || continue
  echo "==> $step"
  "step_$step"
done
[[ ,$only, == *,sums,* ]] || exit 0
cat <<END

$output has the files of version $version, and INSTALL.md for their page. By hand:
- sign: gpg --armor --detach-sign $output/SHA256SUMS
- push the tag: git push origin v$version
- announce it, with the known limits of README.md
END
