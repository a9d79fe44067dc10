#!/usr/bin/env python3
"""Writes Rust declarations of a C header, from the output of `swig -xml`. Comments come from the header itself.

    generate.py XML HEADER >bindings.rs

Knows opaque structs, enums with literal values, pointers to functions, and functions over fixed-width types. A C
interface for other languages needs no more. Any other declaration is an error, so none is left out silently."""
import re
import sys
import textwrap
from xml.etree import ElementTree

WIDTH = 120
PREFIX = "protrain_"
PRIMITIVE = {"void": "c_void", "char": "c_char", "int": "c_int", "float": "f32", "double": "f64", "size_t": "usize",
             "int32_t": "i32", "int64_t": "i64", "uint32_t": "u32", "uint64_t": "u64"}


def attributes(node):
    return {each.get("name"): each.get("value") for each in node.findall("attributelist/attribute")}


def rust_type(swig):
    """SWIG writes types from the outside in: p.q(const).char is a pointer to const char."""
    if swig.startswith("p.q(const)."):
        return "*const " + rust_type(swig[len("p.q(const)."):])
    if swig.startswith("p."):
        return "*mut " + rust_type(swig[2:])
    if swig not in PRIMITIVE and not swig.startswith(PREFIX):
        sys.exit(f"generate.py: no Rust type for {swig}")
    return PRIMITIVE.get(swig, swig)


def returned(swig):
    return "" if swig == "void" else f" -> {rust_type(swig)}"


def split_function(declarator):
    """Splits f(a,b).p. into its parameters and the prefix of its return type."""
    inner, rest = re.fullmatch(r"f\(([^()]*(?:\([^()]*\)[^()]*)*)\)\.(.*)", declarator).groups()
    return [each for each in inner.split(",") if each != "void"], rest


def comments(header):
    """A dict: name -> the lines of the comment directly before its declaration, or after its enumerator."""
    text = open(header).read()
    found = {}
    for comment, declaration in re.findall(r"/\*((?:(?!\*/).)*)\*/\n((?:typedef|PROTRAIN_)[^;{]*)", text, re.S):
        name = re.search(r"(\w+)\)?\(|(\w+)\s*$", declaration)
        found[name[1] or name[2]] = [re.sub(r"^ ?\* ?", "", line.strip()) for line in comment.strip().split("\n")]
    for name, comment in re.findall(r"(PROTRAIN_\w+) = \d+,? +/\* (.*?) \*/", text):
        found[name] = [(comment if comment.startswith(PREFIX) else comment[0].upper() + comment[1:]) + "."]
    return found


def documentation(lines, indent=""):
    """Wraps the first paragraph as prose. The rest is laid out in columns and stays as it is."""
    end = next((at for at, line in enumerate(lines) if re.match(r" |[A-Z]\w+( \w+)?:", line)), len(lines))
    prose = textwrap.wrap(" ".join(lines[:end]), WIDTH - len(indent) - 4)
    rest = ["", "```text", *lines[end:], "```"] if lines[end:] else []
    return "".join(f"{indent}/// {line}".rstrip() + "\n" for line in prose + rest)


def opaque(name):
    return f"""#[repr(C)]
pub struct {name} {{
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}}
"""


def enumeration(node, docs):
    enum = attributes(node)
    # A C compiler gives an enum without negative values the type unsigned int.
    out = f"pub type {enum['name']} = c_uint;\n"
    for item in map(attributes, node.findall("enumitem")):
        if not re.fullmatch(r"\d+", item.get("enumvalue", "")):
            sys.exit(f"generate.py: {item['name']} has no literal value")
        out += "\n" + documentation(docs.get(item["name"], [f"`{enum['name']}`: {item['enumvalue']}."]))
        out += f"pub const {item['name']}: {enum['name']} = {item['enumvalue']};\n"
    return out


def callback(declaration):
    parameters, rest = split_function(declaration["decl"][len("p."):])
    arguments = ", ".join(map(rust_type, parameters))
    function = f"unsafe extern \"C\" fn({arguments}){returned(rest + declaration['type'])}"
    return f"pub type {declaration['name']} = Option<{function}>;\n"


def function(node):
    declaration = attributes(node)
    _, rest = split_function(declaration["decl"])
    parameters = [attributes(each) for each in node.findall("attributelist/parmlist/parm")]
    arguments = [f"{each['name']}: {rust_type(each['type'])}" for each in parameters if each["type"] != "void"]
    result = returned(rest + declaration["type"])
    must_use = "    #[must_use]\n" if result.endswith("*mut protrain_error") else ""
    line = f"    pub fn {declaration['name']}({', '.join(arguments)}){result};\n"
    if len(line) > WIDTH:
        arguments = "".join(f"        {each},\n" for each in arguments)
        line = f"    pub fn {declaration['name']}(\n{arguments}    ){result};\n"
    return must_use + line


def main(xml, header):
    docs = comments(header)
    types, functions = [], []
    for node in xml_nodes(xml):
        entry = attributes(node)
        name = entry["name"]
        if node.tag == "enum":
            types.append(documentation(docs[name]) + enumeration(node, docs))
        elif entry["kind"] == "typedef" and entry["type"] == f"struct {name}":
            types.append(documentation(docs[name]) + opaque(name))
        elif entry["kind"] == "typedef" and entry["decl"].startswith("p.f("):
            types.append(documentation(docs[name]) + callback(entry))
        elif entry["kind"] == "typedef" and entry["type"] == f"enum {name}":
            pass  # its enum came before
        elif entry["kind"] == "function":
            functions.append(documentation(docs[name], "    ") + function(node))
        else:
            sys.exit(f"generate.py: {name} is none of what a declaration may be")
    print("// Generated by bindings/rust/generate.sh from bindings/protrain.i. Do not edit.\n")
    print("use std::marker::{PhantomData, PhantomPinned};\nuse std::os::raw::{c_char, c_int, c_uint, c_void};\n")
    print("\n".join(types))
    print('extern "C" {')
    print("\n".join(functions) + "}")


def xml_nodes(path):
    """Enums and declarations of the header, without those of SWIG's own library."""
    for node in ElementTree.parse(path).iter():
        if node.tag in ("enum", "cdecl", "class", "constant") and attributes(node)["name"].lower().startswith(PREFIX):
            yield node


if __name__ == "__main__":
    main(*sys.argv[1:])
