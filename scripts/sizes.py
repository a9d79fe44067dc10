#!/usr/bin/env python3
"""Checks sizes: lines of files, functions and classes, parameters, members, columns, and protrain.h's comments."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE_LINES, FUNCTION_LINES, PARAMETERS, COLUMNS, COMMENT_SHARE = 600, 60, 6, 120, 0.65
CLASS_LINES, MEMBERS = 250, 12  # of classes; a struct is a plain value, whatever it holds
# Exceptions. The C ABI needs the first two, because no struct may cross it and its one header is its manual. libFuzzer
# prescribes the parameters of the third. The fourth has one method for each call that it fuzzes.
WAIVED = {("src/protrain.cpp", "protrain_session_set_input", "parameters"), ("include/protrain.h", "", "lines"),
          ("tests/fuzz/json_mutator.cpp", "LLVMFuzzerCustomCrossOver", "parameters"), ("tests/fuzz/calls.cpp", "Calls", "class")}

BLANKED = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^(]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)
QUALIFIERS = re.compile(r"\)\s*(?:(?:const|noexcept(?:\([^()]*\))?|override|final|mutable|&&?|->[^{};()]*(?:\([^{};]*\))?)\s*)*$")
NO_FUNCTION = re.compile(r"(?:^|[;{}\s])(?:if|for|while|switch|catch|namespace|enum)\b[^;]*$|=\s*$|\breturn\b")


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def parameters_of(head):
    """Returns the name and the number of parameters in `head`, the text between the last declaration and the brace."""
    start = re.search(r"([~\w:]+|operator\s*\S+)\s*\(", head)
    if not start:
        return None
    depth, count, text = 1, 0, ""
    for char in head[start.end():]:
        depth += char in "(<[{"
        depth -= char in ")>]}"
        if depth == 0:
            break
        count += char == "," and depth == 1
        text += char
    return start.group(1), count + 1 if text.strip() not in ("", "void") else 0


def functions(text):
    """Yields (name, first line, lines, parameters) of every function except lambdas."""
    stack, head_at = [], 0
    for match in re.finditer(r"[{};]", text):
        at, char = match.start(), match.group()
        inside_function = any(kind == "function" for kind, *_ in stack)
        if char == "{":
            head = text[head_at:at]
            kind = "scope"
            if "(" in head and not inside_function and not re.search(r"\b(?:class|struct|union)\b[^()]*$", head):
                if NO_FUNCTION.search(head.split(")")[-1]) or re.match(r"\s*(?:namespace|enum)\b", head):
                    kind = "scope"
                elif QUALIFIERS.search(head) or re.search(r"\)\s*:.*[)}]\s*$", head, re.S):
                    kind = "function"
                else:
                    kind = "initializer"
            stack.append((kind, at, head))
            if kind != "initializer":
                head_at = at + 1
        elif char == "}" and stack:
            kind, opened, head = stack.pop()
            if kind == "function":
                found = parameters_of(head)
                first = text.count("\n", 0, opened) + 1
                if found:
                    yield found[0], first, text.count("\n", opened, at) + 1, found[1]
            if kind != "initializer":
                head_at = at + 1
        elif char == ";" and not (stack and stack[-1][0] == "initializer"):
            head_at = at + 1


def classes(text):
    """Yields (name, first line, lines, data members) of every class. The names of members end in an underscore."""
    for match in re.finditer(r"\bclass\s+(\w+)(?:\s+final)?(?:\s*:[^;{]*)?\s*\{", text):
        depth, at, own = 1, match.end(), ""
        while depth > 0:
            char = text[at]
            depth += (char == "{") - (char == "}")
            own += char if depth == 1 else " "
            at += 1
        members = sum(len(re.findall(r"\b\w+_(?=\s*(?:[=,;]|$))", statement.split("=")[0] + ";"))
                      for statement in own.replace("}", ";").split(";") if not re.search(r"[()]", statement.split("=")[0]))
        first = text.count("\n", 0, match.start()) + 1
        yield match.group(1), first, text.count("\n", match.start(), at) + 1, members


def check_file(path):
    file, text = path.relative_to(ROOT).as_posix(), path.read_text()
    lines = text.splitlines()
    if len(lines) > FILE_LINES:
        yield file, "", "lines", f"{len(lines)} lines, at most {FILE_LINES}"
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS:
            yield file, "", "columns", f"line {number} has {len(line)} columns, at most {COLUMNS}"
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, BLANKED.sub(blank, text), flags=re.M)
    for name, line, length, parameters in functions(code):
        if length > FUNCTION_LINES:
            yield file, name, "length", f"{name} (line {line}) has {length} lines, at most {FUNCTION_LINES}"
        if parameters > PARAMETERS:
            yield file, name, "parameters", f"{name} (line {line}) has {parameters} parameters, at most {PARAMETERS}"
    for name, line, length, members in classes(code):
        if length > CLASS_LINES:
            yield file, name, "class", f"class {name} (line {line}) has {length} lines, at most {CLASS_LINES}"
        if members > MEMBERS:
            yield file, name, "members", f"class {name} (line {line}) has {members} data members, at most {MEMBERS}"


def comment_share(path):
    text = path.read_text()
    comments = re.findall(r"/\*.*?\*/", text, re.S)
    commented = sum(len([line for line in comment.splitlines() if line.strip(" */")]) for comment in comments)
    return commented / len([line for line in text.splitlines() if line.strip()])


def main():
    files = [f for top in ("include", "src", "onnx_import", "tools", "samples", "tests", "bench")
             for f in sorted((ROOT / top).rglob("*")) if f.suffix in (".h", ".c", ".cpp", ".cu")]
    wrong = [f"{file}: {text}" for path in files for file, name, kind, text in check_file(path)
             if (file, name, kind) not in WAIVED]
    share = comment_share(ROOT / "include/protrain.h")
    if share < COMMENT_SHARE:
        wrong.append(f"include/protrain.h: {share:.0%} comments, at least {COMMENT_SHARE:.0%}")
    if "--list" in sys.argv:
        found = sorted(((length, name, path.relative_to(ROOT).as_posix()) for path in files for name, _, length, _ in
                        functions(BLANKED.sub(blank, path.read_text()))), reverse=True)
        print("\n".join(f"{length:4} {name} {file}" for length, name, file in found[:25]))
    print("\n".join(wrong) or f"{len(files)} files keep to the sizes; protrain.h is {share:.0%} comments")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
