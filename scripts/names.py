#!/usr/bin/env python3
"""Checks that a name has one meaning. No two rooms declare a type of the same name in a header, and no type or function
brings back a word that was given up. `names.py --list` prints every type and function with its file."""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TYPE = re.compile(r"^([ ]*)(?:(?:class|struct|enum class)\s+(?:\[\[\w+\]\]\s*)?(\w+)\s*(?:final\s*)?(?::[^:]|[{]|$)"
                  r"|using\s+(\w+)\s*=)", re.M)
FUNCTION = re.compile(r"^[\w:<>,&*\s]*?[\w>&*]\s[&*]?(?:\w+::)*(\w+)\([^;{}]*\)(?:\s*(?:const|noexcept|override))*\s*[;{]", re.M)

# Both backends declare types of the same names, each in its own namespace. layers.py refuses a file that includes both.
TWINS = ("src/backend/cpu/", "src/backend/cuda/")
# The same word in two rooms, for a reason.
TWICE = {
    "Inputs": "session's are a user's, ops' are a node's",
    "Strides": "graph's may be negative or 0; a backend's kernels get them made plain",
}
# Words that names no longer use, and the word to use in their place.
GIVEN_UP = {
    "Served": "ShapeVariant", "Ground": "PlanningInputs", "Site": "Target", "draw_up": "compile", "sketch": "estimate",
    "Drawing": "Draft", "Drafter": "Draft", "Lanes": "QueueWorkers or AxisLines", "turned": "transposed",
    "Turned": "transposed", "light": "cheap", "told": "what it is", "Told": "what it is", "Chosen": "a noun",
    "Found": "SearchResult", "Tied": "a noun", "Laid": "PlanCost", "Glance": "NodeDescription",
    "Judged": "Judgement", "Prepared": "PreparedModel", "Declared": "FileDeclarations",
}
NAMED_SO = {"PreparedModel"}


def names(file, text):
    """Yields (name, is a type, depth) for each declaration of a file."""
    for match in TYPE.finditer(text):
        yield match[2] or match[3], True, len(match[1])
    for match in FUNCTION.finditer(text):
        yield match[1], False, 0


def words(name):
    """The words of a name in snake_case or CamelCase, and the name itself."""
    return {name, *re.findall(r"[A-Z][a-z0-9]*", name), *name.split("_"), "_".join(name.split("_")[:2])}


def main():
    folders = ("src", "onnx_import", "include", "tools", "bench", "tests")
    files = sorted(path.relative_to(ROOT).as_posix() for folder in folders for path in (ROOT / folder).rglob("*")
                   if path.suffix in (".h", ".cpp", ".cu"))
    listing, declared, complaints = [], collections.defaultdict(set), []
    for file in files:
        for name, is_type, depth in names(file, (ROOT / file).read_text()):
            listing.append((name, file))
            if is_type and depth == 0 and file.endswith(".h") and file.startswith("src/") and not file.startswith(TWINS):
                declared[name].add(file)
            if name not in NAMED_SO:
                complaints += [f"{file}: {name}: say {GIVEN_UP[word]}" for word in words(name) & GIVEN_UP.keys()]
    for name, where in sorted(declared.items()):
        if len(where) > 1 and name not in TWICE:
            complaints.append(f"{name} is declared in {' and in '.join(sorted(where))}")
    for name in TWICE.keys() - {name for name, where in declared.items() if len(where) > 1}:
        complaints.append(f"{name} is declared once; take it off the list")
    if "--list" in sys.argv:
        print("\n".join(f"{name}  {file}" for name, file in sorted(set(listing))))
    print("\n".join(sorted(set(complaints))), end="\n" if complaints else "")
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
