#!/bin/bash
# Installs the Debian packages that the given lists name and this machine lacks.
#
# usage: install-packages.sh LIST...
#
# Needs root or sudo. Without them it lists the missing packages and fails; if no package is missing, it needs neither.
# The script starts no service, now or at the next boot.
set -euo pipefail

missing=()
for package in $(sed 's/#.*//' "$@"); do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

as_root=()
if [[ $EUID -ne 0 ]]; then
  if ! command -v sudo >/dev/null || ! { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
    echo "missing Debian packages, and neither root nor sudo to install them: ${missing[*]}" >&2
    echo "as root: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

# The lists may be missing, or list versions that the mirror no longer has.
update() { "${as_root[@]}" apt-get update -qq </dev/null; }
# plan FLAG: prints apt-get's simulation of the installation, which needs no root.
plan() { apt-get install "$1" -y -qq --no-install-recommends "${missing[@]}" 2>/dev/null; }
to_load=$(plan --print-uris || { update && plan --print-uris; } || true)
megabytes=$(awk '{ bytes += $3 } END { printf "%.0f", bytes / 1e6 }' <<<"$to_load")
total=$(plan --simulate | grep -c '^Inst ' || true)
echo "installing ${#missing[@]} Debian packages, with what they need $total, $megabytes MB to load: ${missing[*]}"
policy=/usr/sbin/policy-rc.d
policy_is_ours=0
restore() {
  if ((policy_is_ours)); then "${as_root[@]}" rm -f "$policy"; fi
}
log=$(mktemp)
counter=
clean_up() {
  if [[ $counter ]]; then kill "$counter" 2>/dev/null || true; fi
  restore
  rm -f "$log"
}
trap clean_up EXIT
if [[ ! -e $policy ]]; then
  # While this file exists, the packages' scripts start no service.
  policy_is_ours=1
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod +x "$policy"
fi

install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
    --no-install-recommends "${missing[@]}" </dev/null
}
# count: the progress of apt-get, printed every 10 seconds.
count() {
  local pause
  exec {pause}<> <(:)
  while ! read -rt 10 -u "$pause"; do
    echo "  $SECONDS s: $(grep -c '^Unpacking ' "$log") of $total unpacked, $(grep -c '^Setting up ' "$log") set up"
  done
}
count &
counter=$!
if ! install >"$log" 2>&1; then
  update
  if ! install >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "apt-get could not install: ${missing[*]}" >&2
    exit 1
  fi
fi

# Disable the new services, so that the next boot does not start them either.
for pair in openssh-server:ssh.service openssh-server:ssh.socket munge:munge.service \
            slurmctld:slurmctld.service slurmd:slurmd.service etcd-server:etcd.service; do
  if [[ " ${missing[*]} " == *" ${pair%:*} "* ]] && command -v systemctl >/dev/null; then
    "${as_root[@]}" systemctl disable "${pair#*:}" >/dev/null 2>&1 || true
  fi
done
