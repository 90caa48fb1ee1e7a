#!/bin/bash
# From a fresh clone to a trained model: installs the Debian packages, builds, and trains
# examples/torch_digits.py with horovodrun on two hosts made of namespaces, or else on two local
# slots. Safe to repeat. Starts no system service and changes nothing outside the clone but
# packages.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
root=$PWD
started=$SECONDS
say() { printf '\n==> %s [%d s]\n' "$*" "$((SECONDS - started))"; }

say "Debian packages"
packaging/install-packages.sh packaging/packages.txt
echo "all there"

say "building into build/"
if [[ -f build/build.ninja ]]; then
  cmake build >/dev/null  # looks again for headers that were missing
else
  cmake --preset release -DBUILD_TESTING=OFF
fi
ninja -C build bin/horovodrun bin/horovod-agent bin/horovod-agent-tls bin/horovod-rendezvous \
  lib/libhorovod.so plugins python_package

# python3-torch belongs to Debian's own interpreter, which need not be the first on PATH.
python=/usr/bin/python3
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
echo "with Debian's $python, to which python3-torch belongs. The command, as you would type it:"
echo
echo "    PYTHONPATH=build/python build/bin/horovodrun ${job[*]} $python examples/torch_digits.py"
echo
output=build/quickstart.txt
code=0
"${place[@]}" env PYTHONPATH="$root/build/python" PYTHONDONTWRITEBYTECODE=1 \
  build/bin/horovodrun "${job[@]}" "$python" examples/torch_digits.py </dev/null 2>&1 |
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
