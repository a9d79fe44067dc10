#!/bin/sh
# Opens a CUDA device with different files in the plugin's place. A bad file must give one error, never a crash.
# $1: the folder with the probe and the libraries; $2: the plugin, if it is built.
set -eu
built=$1 plugin=${2:-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$built/plugin_probe" "$folder/"

# expect NAME DEVICE PATTERN
expect() {
  said=$("$folder/plugin_probe" "$2") || { echo "$1: the process failed"; exit 1; }
  echo "$said" | grep -Eq "$3" || { echo "$1: \"$said\" does not match \"$3\""; exit 1; }
  echo "$1: $said"
}
place() { cp "$1" "$folder/libprotrain_cuda.so"; }

expect "no plugin" cuda:0 '^14 device: the plugin for CUDA cannot be loaded: .*libprotrain_cuda\.so'
echo "this is no library" > "$folder/libprotrain_cuda.so"
expect "a text file" cuda:0 '^14 device: the plugin for CUDA cannot be loaded: .*(invalid ELF header|file too short)'
place "$built/no_plugin.so"
expect "no plugin's functions" cuda:0 '^5 device: .*lacks protrain_plugin_build_id'
place "$built/other_build.so"
expect "another build" cuda:0 '^5 device: the plugin for CUDA is of another build \(0\.0\.9-somebody-elses\)'
expect "no such device" tpu:0 '^14 device: there is no device "tpu:0"'
if [ -z "$plugin" ]; then
  echo "the plugin is not built: nothing more is asked"
  exit 0
fi
place "$plugin"
expect "no number" cuda:x '^14 device: "cuda:x" is no device'
expect "a number that no machine has" cuda:4096 '^22 device: (there is no device cuda:4096|no driver)'
expect "the first device" cuda:0 '^(0 NVIDIA|22 device: (no driver of NVIDIA|there is no device cuda:0|the devices could not be counted))'
