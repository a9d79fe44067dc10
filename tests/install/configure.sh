#!/bin/sh
# Configures the project in scratch folders and builds nothing. What cannot work must be refused by name.
# usage: configure.sh SOURCE
set -eu
source=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CFLAGS CXXFLAGS LDFLAGS CMAKE_BUILD_TYPE
fail() {
  echo "configure: $*" >&2
  exit 1
}

# configure NAME OPTION...: configures in the folder NAME, without what no case here is about. Leaves the output in
# NAME.log.
configure() {
  name=$1
  shift
  cmake -S "$source" -B "$work/$name" -DPROTRAIN_CUDA=OFF -DPROTRAIN_COMM=OFF -DPROTRAIN_TESTS=OFF -DPROTRAIN_TOOLS=OFF \
    "$@" >"$work/$name.log" 2>&1
}
# says NAME WORDS: the output of NAME has the words, wherever its lines are broken.
says() {
  tr -s ' \n' ' ' <"$work/$1.log" | grep -qF -e "$2" || fail "$(cat "$work/$1.log")" "'$2' was expected"
}
# refuses NAME WORDS OPTION...
refuses() {
  name=$1
  words=$2
  shift 2
  ! configure "$name" "$@" || fail "$* was not refused"
  says "$name" "$words"
}

# The pkg-config file and the command's RPATH lead from folder to folder within the prefix.
for folder in BINDIR LIBDIR INCLUDEDIR; do
  refuses $folder "CMAKE_INSTALL_$folder is /opt/folder, an absolute path" -DCMAKE_INSTALL_$folder=/opt/folder
done

# GNU's programs make the static library, whatever the compiler brings. Where they are missing it is left out.
if command -v clang++ >/dev/null; then
  if configure clang -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++; then
    wrong=$(grep -rhe --force-group-allocation "$work/clang" --include=build.make --include=build.ninja |
      grep -oE '[^ ]*([.]lld|[.]pch|llvm-)[^ ]*' || true)
    [ -z "$wrong" ] || fail "the static library is made by or of" $wrong
    # clang before 18 always picks a clone's baseline, and its clones of equal names in two files do not link.
    if [ "$(uname -m)" = x86_64 ] && [ "$(echo __clang_major__ | clang -E -P -)" -lt 18 ]; then
      says clang 'cannot choose loops for AVX2 or AVX-512 at run time'
      grep -rq DPROTRAIN_NO_CLONES "$work/clang" --include=flags.make --include=build.ninja || fail "clang compiles clones"
    fi
  elif grep -q 'Could NOT find OpenMP' "$work/clang.log"; then
    echo "configure: no libomp-dev here: not tried with clang"
  else
    fail "$(cat "$work/clang.log")"
  fi
else
  echo "configure: no clang here: not tried with it"
fi
configure no_gnu -DPROTRAIN_NM= || fail "$(cat "$work/no_gnu.log")"
says no_gnu "The static library is left out: there is no nm of GNU's"
# Its objects are linked into one without the compiler, which -flto does not allow.
configure lto -DCMAKE_CXX_FLAGS=-flto=auto || fail "$(cat "$work/lto.log")"
says lto "The static library is left out: objects of -flto are linked by the compiler alone"

# The library knows the interfaces of oneDNN 2 and 3.
mkdir -p "$work/onednn/oneapi/dnnl"
touch "$work/onednn/oneapi/dnnl/dnnl.h"
echo '#define DNNL_VERSION_MAJOR 4' >"$work/onednn/oneapi/dnnl/dnnl_version.h"
refuses onednn4 "holds oneDNN 4. It must hold oneDNN 2 or 3" -DDNNL_INCLUDE_DIR="$work/onednn"

# The library links protobuf, and none of the libraries that protobuf needs from version 22 on.
mkdir -p "$work/protobuf/google/protobuf/stubs"
echo '#define GOOGLE_PROTOBUF_VERSION 4022000' >"$work/protobuf/google/protobuf/stubs/common.h"
refuses protobuf22 "protobuf 4.22.0 is found in $work/protobuf. It must be 3.21" -DProtobuf_INCLUDE_DIR="$work/protobuf"

# Libraries in folders of their own are found there: by the installed library, and by who links the static one.
mkdir "$work/far"
touch "$work/far/libdnnl.so" "$work/far/xxhash.h"
configure folders -DDNNL_LIBRARY="$work/far/libdnnl.so" -DXXHASH_INCLUDE_DIR="$work/far" || fail "$(cat "$work/folders.log")"
(
  cd "$work/folders"
  grep -q -e "-isystem $work/far" compile_commands.json || fail "the folder of xxhash.h is not searched"
  grep -q "^Libs.private: -L$work/far -lprotobuf-lite" protrain.pc || fail "$(cat protrain.pc)"
  grep -q " RPATH \"[^\"]*$work/far[:\"]" cmake_install.cmake || fail "no RPATH"
  grep -rq "INTERFACE_LINK_LIBRARIES \"-L$work/far;" CMakeFiles/Export || fail "the CMake package has no folder"
)

# Within another project there are the libraries, by the names of the CMake package, and nothing else of ours.
mkdir "$work/parent"
cp "$source/tests/install/consumers/consumer.c" "$work/parent"
cat >"$work/parent/CMakeLists.txt" <<PARENT
cmake_minimum_required(VERSION 3.25)
project(parent LANGUAGES C CXX)
set(PROTRAIN_CUDA OFF)
set(PROTRAIN_COMM OFF)
add_subdirectory("$source" protrain)
foreach(kind protrain protrain_static)
  if(kind STREQUAL protrain OR TARGET protrain::\${kind}) # where GNU's programs are missing, there is no static library
    add_executable(with_\${kind} consumer.c)
    target_link_libraries(with_\${kind} PRIVATE protrain::\${kind})
  endif()
endforeach()
foreach(target protrain_command test_programs installed)
  if(TARGET \${target})
    message(FATAL_ERROR "\${target} is a target of the parent")
  endif()
endforeach()
if(CMAKE_BUILD_TYPE OR CPack_CMake_INCLUDED)
  message(FATAL_ERROR "the parent's settings have changed")
endif()
PARENT
cmake -S "$work/parent" -B "$work/within" >"$work/within.log" 2>&1 || fail "$(cat "$work/within.log")"
[ ! -e "$work/within/CPackConfig.cmake" ] || fail "cpack is taken over"
