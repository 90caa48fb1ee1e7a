#!/bin/bash
# From a fresh clone to a trained model: installs the Debian packages, builds, and trains
# examples/torch_digits.py with horovodrun on two hosts made of namespaces, or else on two local
# slots. Safe to repeat. Starts no system service and changes nothing outside the clone but
# packages.
#
# usage: packaging/quickstart.sh [FOLDER]
#   FOLDER  where it has a wheel of this version, the wheel takes the place of the compiler
set -euo pipefail
folder=${1:+$(readlink -f "$1")}
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
root=$PWD
started=$SECONDS
say() { printf '\n==> %s [%d s]\n' "$*" "$((SECONDS - started))"; }

version=$(sed -n 's/^project(horovod VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
wheel=
if [[ $folder ]]; then
  wheel=$(compgen -G "$folder/horovodrun-$version-*_$(uname -m).whl" | head -n 1 || true)
  [[ $wheel ]] || echo "$folder has no wheel of horovodrun $version for $(uname -m): the compiler builds its programs"
fi

say "Debian packages"
if [[ $wheel ]]; then
  packaging/install-packages.sh <(sed '/^# to build/,/^# to train/d' packaging/packages.txt)
else
  packaging/install-packages.sh packaging/packages.txt
fi
echo "all there"

# python3-torch belongs to Debian's own interpreter, which may not be the first on PATH.
python=build/venv-quickstart/bin/python3
if [[ ! -x $python ]]; then
  say "a virtual environment over Debian's /usr/bin/python3, to which python3-torch belongs"
  /usr/bin/python3 -m venv --system-site-packages build/venv-quickstart
fi
# py-spy shows where a rank hangs.
if [[ ! -e build/venv-quickstart/bin/py-spy ]]; then
  said=build/quickstart-pip.txt
  timeout 60 build/venv-quickstart/bin/pip install --quiet --disable-pip-version-check py-spy >"$said" 2>&1 ||
    echo "going on without py-spy, which shows the Python stacks of ranks: $(tail -n 1 "$said")"
fi
if [[ $wheel ]]; then
  say "installing ${wheel##*/} in place of a build"
  build/venv-quickstart/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-index --no-deps \
    "$wheel"
  program=(build/venv-quickstart/bin/horovodrun)
else
  say "building into build/"
  if [[ -f build/build.ninja ]]; then
    cmake build >/dev/null  # searches again for headers that were missing
  else
    cmake --preset release -DBUILD_TESTING=OFF
  fi
  ninja -C build bin/horovodrun bin/horovod-agent bin/horovod-agent-tls bin/horovod-rendezvous \
    lib/libhorovod.so plugins python_package
  program=(env PYTHONPATH="$root/build/python" build/bin/horovodrun)
fi

as_root=()
[[ $EUID -eq 0 ]] || ! sudo -n true 2>/dev/null || as_root=(sudo -n --preserve-env=PATH)

if reason=$("${as_root[@]}" tests/hosts/hosts try 2>&1); then
  say "training on two hosts, a and b: network namespaces of this machine, each with its own sshd"
  # shellcheck disable=SC2054 # the list of hosts is one word
  job=(-np 8 -H a:4,b:4)
  place=("${as_root[@]}" tests/hosts/hosts run --names "a b" --)
else
  say "training on two slots of this machine, since it cannot make hosts (${reason#hosts: no: })"
  job=(-np 2)
  place=()
fi
echo "The command, as you would type it:"
echo
echo "    ${program[*]} ${job[*]} $python examples/torch_digits.py" | sed "s|env PYTHONPATH=$root/|PYTHONPATH=|"
echo
output=build/quickstart.txt
code=0
"${place[@]}" env PYTHONDONTWRITEBYTECODE=1 "${program[@]}" "${job[@]}" "$python" examples/torch_digits.py \
  </dev/null 2>&1 |
  tee "$output" || code=$?

accuracy=$(sed -n 's/.*test accuracy \([0-9.]*\) after.*/\1/p' "$output" | tail -n 1)
printf '\n==> test accuracy %s, %s s in all\n' "${accuracy:-unknown}" "$((SECONDS - started))"
if [[ $code -ne 0 ]]; then
  echo "horovodrun ended with exit code $code" >&2
  exit "$code"
fi
awk -v got="${accuracy:-0}" 'BEGIN { exit !(got >= 0.95) }' || {
  echo "an accuracy of at least 0.95 was expected" >&2
  exit 1
}
