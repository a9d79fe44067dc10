#!/usr/bin/env python3
"""Checks every include against the table in src/README.md. Also checks that the files of a room do not include each
other in a circle, and names headers that nobody includes."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROW = re.compile(r"^(\S+?)/?\s+(pure\s+)?\S.*?(?:<- (only)?\s*(.*))?$")
IMPURE = {"chrono", "thread", "mutex", "atomic", "condition_variable", "fstream", "filesystem", "iostream", "cstdio",
          "random", "unistd.h", "fcntl.h", "pthread.h", "sys/mman.h", "sys/stat.h"}
FOREIGN = {"google/protobuf": "onnx_import", "onnx_import/model.pb.h": "onnx_import", "oneapi/": "src/backend/cpu",
           "omp.h": "src/backend/cpu", "CLI/": "tools", "liburing.h": "src/base",
           "xxhash.h": "src/base", "cuda_runtime.h": "src/backend/cuda", "cublasLt.h": "src/backend/cuda",
           "mpi.h": "src/comm/mpi", "gloo/": "src/comm/gloo", "nccl.h": "src/comm/nccl"}
# Files that still include each other; a header and its sources count as one. No others may be added.
KNOTS = ({"src/backend/cpu/product", "src/backend/cpu/widened_product"},
         {"src/backend/cuda/attention", "src/backend/cuda/attention_tiles"})


def read_table():
    """Room path -> (rooms it may include, pure)."""
    text = (ROOT / "src/README.md").read_text().split("```")[1].strip()
    rows = [ROW.match(line).groups() for line in text.splitlines()]
    path_of = {pathlib.Path(path).name: path for path, *_ in rows}
    named = {path: [path_of[n] for n in (names or "").replace(",", " ").split()] for path, _, _, names in rows}
    only = {path for path, _, word, _ in rows if word}

    def reach(path):
        found = {path, *named[path]}
        if path not in only:
            found |= {"src/base"}.union(*(reach(other) for other in named[path]))
        return found

    direct = {path: reach(path) | ({"src/base"} if path == "src/protrain.cpp" else set()) for path in named}
    return {path: (direct[path], bool(pure)) for path, pure, _, _ in rows}


def room_of(file, rooms):
    for path in sorted(rooms, key=len, reverse=True):
        if file == path or file.startswith(path + "/"):
            return path
    return None


def resolve(file, name):
    """The repository's file that an include means, or None."""
    for folder in (pathlib.Path(file).parent, pathlib.Path("src"), pathlib.Path("."), pathlib.Path("include"),
                   pathlib.Path("tests")):
        if (ROOT / folder / name).is_file():
            return (folder / name).as_posix()
    return None


def unit_of(file):
    return file.rsplit(".", 1)[0]


def knots(edges):
    """The sets of units that reach each other over `edges`: unit -> units that it includes."""
    def reach(unit):
        found, todo = set(), [unit]
        while todo:
            new = edges.get(todo.pop(), set()) - found
            found |= new
            todo += new
        return found

    reached = {unit: reach(unit) for unit in edges}
    return {frozenset(other for other in reached[unit] if unit in reached.get(other, ()))
            for unit in edges if unit in reached[unit]}


def main():
    rooms = read_table()
    wrong, included, edges = [], {"include/protrain.h"}, {}
    files = [f for top in ("include", "src", "onnx_import", "tools", "samples", "tests", "bench")
             for f in sorted((ROOT / top).rglob("*")) if f.suffix in (".h", ".c", ".cpp", ".cu")]
    for path in files:
        file = path.relative_to(ROOT).as_posix()
        room = room_of(file, rooms)
        for name in re.findall(r'^\s*#\s*include\s*["<]([^">]+)[">]', path.read_text(), re.M):
            target = resolve(file, name)
            if target:
                included.add(target)
            if target and room and unit_of(target) != unit_of(file):
                edges.setdefault(unit_of(file), set()).add(unit_of(target))
            if room is None:  # tests may see everything
                if not file.startswith(("tests/", "bench/")):
                    wrong.append(f"{file}: is in no room of src/README.md")
                continue
            allowed, pure = rooms[room]
            if target and room_of(target, rooms) not in allowed:
                wrong.append(f"{file}: {room} may not include {name}")
            if pure and name in IMPURE:
                wrong.append(f"{file}: {room} is pure and may not include {name}")
            wrong += [f"{file}: only {home} may include {name}"
                      for prefix, home in FOREIGN.items() if name.startswith(prefix) and not file.startswith(home + "/")]
    wrong += [f"{', '.join(sorted(knot))}: include each other" for knot in knots(edges)
              if not any(knot <= known for known in KNOTS)]
    headers = {f.relative_to(ROOT).as_posix() for f in files if f.suffix == ".h"}
    wrong += [f"{header}: nobody includes it" for header in sorted(headers - included)]
    print("\n".join(wrong) or f"{len(files)} files keep to the table of src/README.md")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
