#!/bin/bash
# Makes an image of Debian 12 with horovodrun, the Python package, PyTorch, Open MPI, pip and an ssh server, by Debian's
# own tools: no container runtime, no registry.
#
# usage: packaging/oci/image.sh FOLDER_OF_DEBS OUTPUT_FOLDER [MIRROR...]
#
# Needs root, mmdebstrap and umoci. A MIRROR is a line of sources.list; without one, mmdebstrap chooses.
# The file is an archive of OCI with one image, since `podman load -i` refuses two, also two tags of one:
# localhost/horovod:TAG. A text next to it lists its packages and files. `skopeo copy oci-archive:FILE docker://REGISTRY/NAME:TAG` sends it to a registry.
set -euo pipefail
[[ $# -ge 2 ]] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
debs=$(realpath "$1")
mkdir -p "$2"
output=$(realpath "$2")
shift 2
refuse() { echo "image.sh: $*" >&2; exit 1; }
for program in mmdebstrap umoci; do
  command -v "$program" >/dev/null || refuse "there is no $program: install Debian's package $program"
done
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
version=$(sed -n 's/^project(horovod VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
packages=()
for name in libhorovod1 horovodrun python3-horovod; do
  deb=$(ls "$debs/$name"_*.deb) || refuse "$debs has no package $name; dpkg-buildpackage or packaging/debian.sh makes it"
  packages+=("$deb")
done
mkdir "$scratch/debs" "$scratch/examples"
cp "${packages[@]}" "$scratch/debs"
cp -a examples "$scratch"
cp packaging/oci/pip.conf "$scratch"
find "$scratch/examples" -name __pycache__ -prune -exec rm -rf {} +
# mmdebstrap keeps dates that precede the commit's date, for example in an old clone.
find "$scratch/examples" "$scratch/pip.conf" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
# The Debian packages that these packages need; of alternatives, the first.
needed=$(for deb in "${packages[@]}"; do dpkg-deb -f "$deb" Pre-Depends Depends; done |
  sed 's/^[A-Z][A-Za-z-]*://' | tr , '\n' | sed 's/^ *//; s/[ (|:].*//' | grep -Ev '^(libhorovod1)?$' | sort -u)
# Without libpmix2 and libmunge2, horovodrun refuses ranks that mpirun or srun started on the host. Host keys in an
# image would be public, so a worker generates its own (packaging/kubernetes/mpijob.yaml).
include=$(printf '%s\n' $needed ca-certificates libmunge2 libpmix2 libssh-4 openmpi-bin openssh-client openssh-server \
  python-is-python3 python3 python3-numpy python3-pip python3-torch | sort -u | paste -sd,)
mmdebstrap --quiet --variant=minbase --mode=root --format=tar --include="$include" \
  --customize-hook="copy-in '$scratch/debs' /var/cache" \
  --customize-hook='chroot "$1" sh -c "dpkg -i /var/cache/debs/*.deb"' \
  --customize-hook='rm -rf "$1"/var/cache/debs "$1"/etc/ssh/ssh_host_* "$1"/var/lib/apt/lists/*' \
  --customize-hook="copy-in '$scratch/examples' /" \
  --customize-hook="copy-in '$scratch/pip.conf' /etc" \
  bookworm "$scratch/root.tar" "$@"

python=$(tar -xOf "$scratch/root.tar" ./var/lib/dpkg/status | sed -n '/^Package: python3$/,/^$/s/^Version: \([0-9]*\.[0-9]*\).*/\1/p')
torch=$(tar -xOf "$scratch/root.tar" ./var/lib/dpkg/status | sed -n '/^Package: python3-torch$/,/^$/s/^Version: \([0-9.]*\).*/\1/p')
[[ -n $python && -n $torch ]] || refuse "the image has no python3 or no python3-torch"
tag=$version-torch$torch-py$python-cpu
# An OCI layout with one layer. The script unpacks nothing, so it needs neither a container runtime nor namespaces.
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
umoci init --layout "$scratch/oci"
umoci new --image "$scratch/oci:$tag"
umoci raw add-layer --image "$scratch/oci:$tag" --history.created "$created" --history.created_by mmdebstrap "$scratch/root.tar"
umoci config --image "$scratch/oci:$tag" --created "$created" --no-history --os linux \
  --architecture "$(dpkg --print-architecture)" --config.workingdir /examples \
  --config.cmd horovodrun --config.cmd=--check-build --config.env LANG=C.UTF-8 \
  --config.env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  --config.label org.opencontainers.image.title=horovodrun \
  --config.label org.opencontainers.image.version="$version" \
  --config.label org.opencontainers.image.licenses=Apache-2.0
# podman and docker take the name of the image from this annotation, and otherwise call it localhost/TAG:latest.
sed -i 's/"org.opencontainers.image.ref.name":"/"io.containerd.image.name":"localhost\/horovod:'"$tag"'",&/' \
  "$scratch/oci/index.json"
grep -q io.containerd.image.name "$scratch/oci/index.json" || refuse "umoci wrote another index: $(cat "$scratch/oci/index.json")"
umoci gc --layout "$scratch/oci"
file=$output/horovod-$tag.oci.tar
tar -C "$scratch/oci" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf "$file" .
# Two runs of one commit write the same list if the mirror has the same packages.
{
  echo "packages"
  tar -xOf "$scratch/root.tar" ./var/lib/dpkg/status |
    awk -F ': ' '$1 == "Package" {name = $2} $1 == "Version" {print name, $2}' | LC_ALL=C sort
  echo "mode, owner and name of each file"
  tar --numeric-owner -tvf "$scratch/root.tar" | sed -E 's/^(\S+) (\S+) +\S+ \S+ \S+ /\1 \2 /' | LC_ALL=C sort -k 3
} >"${file%.oci.tar}.txt"
echo "$file"
