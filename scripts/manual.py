#!/usr/bin/env python3
"""Keeps the lists of options in docs/protrain.1 equal to the command's own help.

usage: manual.py COMMAND PAGE [--write]    COMMAND: the built protrain. Without --write it only compares.
"""
import pathlib
import re
import subprocess
import sys

SESSION = "Options of the session:"


def help_of(command, *words):
    return subprocess.run([command, *words, "--help"], check=True, capture_output=True, text=True).stdout


def roff(text):
    return text.replace("\\", "\\e").replace("-", "\\-")


def entry(flag, rest, sentence):
    """One option. Its argument stands before the sentence's first colon or comma, or in brackets behind the sentence."""
    taken = re.match(r"([A-Z][\w.=]*|[a-z]+=[a-z]+)[:,] ", sentence)
    allowed = re.search(r" \(([A-Z]+=N[,.]*|[A-Z]+|[^ ]+\|[^ ]+)\)", sentence)
    declared = re.search(r"[:{]([\w,]+)", rest)
    argument = ""
    if taken:
        argument, sentence = taken[1], sentence[taken.end() :]
    elif allowed:
        argument, sentence = allowed[1], sentence[: allowed.start()] + sentence[allowed.end() :]
    elif declared:
        argument = declared[1].replace(",", "|")
    elif rest:
        argument = "FILE" if rest.startswith("TEXT") else "X"
    if argument:
        argument = rf" \fI{roff(argument)}\fR"
    # \& at the front, because roff takes a line that begins with a point for a request.
    return f".TP\n.B {roff(flag)}{argument}\n\\&{roff(sentence)}\n"


def options(text):
    # After a long argument, the sentence stands on the next line.
    found = re.findall(r"^  (?:-\w,)?(--[a-z0-9-]+) ?(.*?)(?: {2,}|\n {20,})(\S.*)$", text, re.MULTILINE)
    return "".join(entry(*option) for option in found if option[0] != "--help")


def blocks(command):
    yield "session", options(help_of(command, "train").partition(SESSION)[2])
    subcommands = help_of(command).partition("Subcommands:")[2]
    for name in re.findall(r"^  ([a-z]+) +\S", subcommands, re.MULTILINE):
        yield name, options(help_of(command, name).partition(SESSION)[0])


def main(command, page, write=False):
    path = pathlib.Path(page)
    old = new = path.read_text()
    for name, block in blocks(command):
        marks = re.compile(rf'(\.\\" begin {name}: .*\n)[^\0]*?(\.\\" end {name}\n)')
        if not marks.search(new):
            sys.exit(f"{page} says nothing about {name}")
        new = marks.sub(lambda match: match[1] + block + match[2], new)
    if write:
        path.write_text(new)
    elif new != old:
        sys.exit(f"{page} is not what {command} --help says: scripts/manual.py {command} {page} --write")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3:] == ["--write"])
