#!/bin/bash
# Unpacks Debian packages for another processor, and their dependencies, into a separate folder.
#
# usage: sysroot.sh ARCHITECTURE FOLDER LIST...
#
# Does not change the machine's own packages, and needs no root: apt uses an empty database next to the folder. If the
# folder was already made from the same lists, the script does nothing.
set -euo pipefail
if [[ $# -lt 3 ]]; then
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
  exit 2
fi
architecture=$1 folder=$2
shift 2
wanted=$(sed 's/#.*//' "$@" | xargs)
[[ $(cat "$folder/made-from" 2>/dev/null) != "$wanted" ]] || exit 0

rm -rf "$folder" "$folder.apt"
mkdir -p "$folder"/usr/{bin,sbin,lib} "$folder.apt"/{state/lists/partial,cache/archives/partial}
apt=$(realpath "$folder.apt")
folder=$(realpath "$folder")
touch "$apt/status"
cat >"$apt/apt.conf" <<END
APT::Architecture "$architecture";
APT::Architectures { "$architecture"; };
APT::Sandbox::User "";
Dir::State "$apt/state";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
END
export APT_CONFIG=$apt/apt.conf
apt-get update -qq
# shellcheck disable=SC2086
all=$(apt-get install -s -qq --no-install-recommends $wanted | awk '/^Inst/ {print $2}')
echo "unpacking $(wc -w <<<"$all") packages for $architecture into $folder"
# shellcheck disable=SC2086
(cd "$apt/cache/archives" && apt-get download -qq $all)
# As on Debian itself, /lib is /usr/lib.
for name in bin sbin lib; do ln -s "usr/$name" "$folder/$name"; done
for package in "$apt"/cache/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink --no-same-owner -C "$folder"
done
# Link the alternatives that the packages' own scripts would choose; these scripts do not run.
for library in blas lapack; do
  for folder_of in "$folder"/usr/lib/*/"$library"; do
    if [[ -d $folder_of ]]; then ln -s "$library/lib$library.so.3" "$folder_of/.."; fi
  done
done
# Absolute links must lead to targets inside the folder.
find "$folder" -type l -lname '/*' | while read -r link; do
  ln -sfn "$folder$(readlink "$link")" "$link"
done
rm -rf "$apt"
echo "$wanted" >"$folder/made-from"
