#!/usr/bin/env python3
"""Compares two files of Rust declarations: functions with their parameters, constants with their values, types.

    referee.py GENERATED.rs BINDGEN.rs"""
import re
import sys


def plain(text):
    """A type or a list without the details that may differ: blanks, paths of std, a comma at the end."""
    text = re.sub(r"\s+|::std::(?:os::raw|option)::", "", text)
    return re.sub(r",(?=[)}>]|$)", "", text)


def declarations(path):
    text = re.sub(r"//[^\n]*|/\*.*?\*/|#!?\[(?!must_use)[^\n]*\]", "", open(path).read(), flags=re.S)
    found = {}
    for checked, name, parameters, result in re.findall(
            r"(#\[must_use\]\s+)?pub fn (\w+)\(([^)]*)\)([^;]*);", text):
        found["fn " + name] = (plain(parameters), plain(result), "must_use" if checked else "")
    for name, fields in re.findall(r"pub struct (\w+) \{([^}]*)\}", text):
        found["struct " + name] = plain(re.sub(r"\b_\w+:[^\n]*", "", fields))  # private fields have no size
    for name, type_, value in re.findall(r"pub const (\w+): ([^=]*) = ([^;]*);", text):
        found["const " + name] = (plain(type_), plain(value))
    for name, type_ in re.findall(r"pub type (\w+) = ([^;]*);", text):
        found["type " + name] = re.sub(r"(?<=[(,])\w+:", "", plain(type_))
    return {name: what for name, what in found.items() if not name.startswith("type __")}  # the C library's


def main(generated, bindgen):
    ours, theirs = declarations(generated), declarations(bindgen)
    differ = [name for name in sorted(ours.keys() | theirs.keys()) if ours.get(name) != theirs.get(name)]
    for name in differ:
        print(f"{name}\n  {generated}: {ours.get(name)}\n  {bindgen}: {theirs.get(name)}")
    print(f"{len(ours)} declarations, {len(differ)} of them not as bindgen has them")
    sys.exit(bool(differ) or not ours)


if __name__ == "__main__":
    main(*sys.argv[1:])
