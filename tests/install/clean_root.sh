#!/bin/sh
# Installs the Debian packages of a build in a root that has only this machine's Debian and a C compiler, and uses the
# command, the shared library and the static one there. Then removes the packages.
# usage: clean_root.sh SOURCE BUILD    as root, with debootstrap and access to Debian's archive
# Keeps the root in BUILD/clean-root.tar, because making it takes a minute.
set -eu
source=$1
build=$2
debian=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $debian" | head -n 1)
[ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null || {
  echo "clean_root: not tried, it takes root and debootstrap"
  exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ ! -e "$build/clean-root.tar" ]; then
  debootstrap --variant=minbase --include=gcc,libc6-dev,make,pkg-config,cmake "$debian" "$work/new" "$mirror" \
    >"$work/log" 2>&1 || {
    tail -n 3 "$work/log"
    echo "clean_root: not tried, debootstrap made no root from $mirror"
    exit 77
  }
  tar -C "$work/new" -cf "$build/clean-root.tar.part" .
  mv "$build/clean-root.tar.part" "$build/clean-root.tar"
  rm -rf "$work/new"
fi
mkdir "$work/root"
tar -C "$work/root" -xf "$build/clean-root.tar"
mkdir "$work/root/packages" "$work/root/home/user"
sh "$source/tests/install/package.sh" "$build" "$work/root/packages" >/dev/null
cp "$source"/tests/install/consumers/* "$source/tests/fixtures/gpt2-dynamic-opset18.onnx" "$work/root/home/user"
cp /etc/resolv.conf "$work/root/etc/resolv.conf"

cat >"$work/root/use.sh" <<'USE'
set -eu
mount -t proc proc /proc
export DEBIAN_FRONTEND=noninteractive HOME=/home/user LC_ALL=C.UTF-8
useradd --home-dir "$HOME" user
chown -R user "$HOME"
as_user() { su --preserve-environment user -c "set -eu; cd; $1"; }
quietly() { "$@" >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }; }

quietly apt-get update -q
quietly apt-get install -q -y --no-install-recommends /packages/*.deb
as_user 'protrain check gpt2-dynamic-opset18.onnx >/dev/null
  make -s shared
  ./shared gpt2-dynamic-opset18.onnx
  cmake -B cmake . >/dev/null
  cmake --build cmake --target shared >/dev/null
  cmake/shared gpt2-dynamic-opset18.onnx
  head -c 20000 /usr/share/common-licenses/GPL-3 | iconv -f ISO-8859-1 -t UTF-16LE >text.bin
  protrain train gpt2-dynamic-opset18.onnx --steps 3 --tokens text.bin --batch 2 --sequence 32 --labels same \
    --export trained.onnx --save run >/dev/null
  protrain train trained.onnx --steps 1 --tokens text.bin --batch 2 --sequence 32 --labels same --resume run >/dev/null'
quietly apt-get install -q -y --no-install-recommends \
  $(dpkg-query -W -f '${Recommends}' libprotrain-dev | tr -d ,)
as_user 'make -s static
  ./static gpt2-dynamic-opset18.onnx
  cmake --build cmake --target static >/dev/null
  cmake/static gpt2-dynamic-opset18.onnx'
quietly apt-get purge -q -y libprotrain0
left=$(find / -xdev -name '*protrain*' -not -path '/packages/*' -not -path "$HOME/*")
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
USE
unshare --mount --pid --fork chroot "$work/root" sh /use.sh
echo "clean_root: installed, used and removed"
