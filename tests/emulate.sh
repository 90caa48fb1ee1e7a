#!/bin/bash
# Runs a command in an environment that starts programs for 64-bit ARM by qemu-user, also programs
# that those programs start, by any path or descriptor, with any environment.
#
# usage: emulate.sh SYSROOT COMMAND...
#
# The emulator is registered in a new user namespace (Linux 6.7), so the machine stays unchanged. If
# that is not possible, the script prints the reason and exits with 77. Root gets all users, as sshd
# requires.
set -euo pipefail

# Debian's qemu always looks for the programs' libraries in /etc/qemu-binfmt: make /etc a folder with its earlier
# content and this entry.
prepare() {
  local sysroot=$1 etc name
  etc=$(mktemp -d)
  mount -t tmpfs none "$etc"
  mkdir -m 755 "$etc/etc" "$etc/etc/qemu-binfmt"
  ln -s "$sysroot" "$etc/etc/qemu-binfmt/aarch64"
  shopt -s dotglob
  for name in /etc/*; do
    if [[ $name == /etc/qemu-binfmt ]]; then continue; fi
    if [[ -L $name ]]; then
      cp -P "$name" "$etc$name"
      continue
    fi
    if [[ -d $name ]]; then mkdir "$etc$name"; else touch "$etc$name"; fi
    mount --rbind "$name" "$etc$name"
  done
  mount --rbind "$etc/etc" /etc
  umount -l "$etc"
  rmdir "$etc"
  mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
  # ELF for EM_AARCH64 (0xb7), executable or shared. P passes the first argument, O the open file; F keeps qemu
  # available in another root.
  printf '%s' ':hvd-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00' \
    ':\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff' \
    ":$(command -v qemu-aarch64-static):POF" >/proc/sys/fs/binfmt_misc/register
}

# map_users PID OURS: maps users once that process has left this user namespace.
map_users() {
  local kind
  while [[ $(readlink "/proc/$1/ns/user") == "$2" ]]; do sleep 0.01; done
  for kind in uid gid; do awk '{print $1, $1, $3}' /proc/self/${kind}_map >"/proc/$1/${kind}_map"; done
}

if [[ ${1:-} == --inside ]]; then
  until [[ $(id -u):$(id -g) == 0:0 ]]; do sleep 0.01; done
  exec "$0" --mapped "${@:2}"  # programs that root starts keep root's rights
elif [[ ${1:-} == --mapped ]]; then
  prepare "$2"
  exec "${@:3}"
fi

sysroot=$(realpath "$1")
shift
if ! unshare -Urm mount -t binfmt_misc none /proc/sys/fs/binfmt_misc 2>/dev/null; then
  echo "programs for 64-bit ARM cannot be started here: that needs Linux 6.7 and user namespaces" >&2
  exit 77
fi
if [[ $EUID -ne 0 ]]; then exec unshare -Urm "$0" --mapped "$sysroot" "$@"; fi
map_users $$ "$(readlink /proc/self/ns/user)" </dev/null &
exec unshare -Um "$0" --inside "$sysroot" "$@"
