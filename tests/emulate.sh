#!/bin/bash
# Runs a command where programs for 64-bit ARM start like others, by qemu-user: also those that other
# programs start.
#
# usage: emulate.sh SYSROOT COMMAND...
#
# What starts them is registered in a user namespace of its own (Linux 6.7), so nothing of the machine
# changes. Where that cannot be, it says so and fails with 77.
set -euo pipefail
if [[ ${1:-} == --inside ]]; then
  interpreter=$2
  shift 2
  mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
  # ELF for EM_AARCH64 (0xb7), executable or shared; P hands the first argument on.
  printf '%s' ':hvd-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00' \
    ':\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff' \
    ":$interpreter:P" >/proc/sys/fs/binfmt_misc/register
  exec "$@"
fi

sysroot=$(realpath "$1")
shift
interpreter=$sysroot/../emulator
# An interpreter that is a script, since the sysroot must be found whatever the environment is.
cat >"$interpreter" <<END
#!/bin/sh
program=\$1 name=\$2
shift 2
exec qemu-aarch64-static -L "$sysroot" -0 "\$name" "\$program" "\$@"
END
chmod +x "$interpreter"
interpreter=$(realpath "$interpreter")
if ! unshare -Urm "$0" --inside "$interpreter" true 2>/dev/null; then
  echo "programs for 64-bit ARM cannot be started here: that needs Linux 6.7 and user namespaces" >&2
  exit 77
fi
exec unshare -Urm "$0" --inside "$interpreter" "$@"
