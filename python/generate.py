#!/usr/bin/env python3
"""Writes the Python module finepc._api from the C sources: constants, enumerations and prototypes come from include/finepc.h, and
docstrings from the manual pages beside the functions.

    generate.py --source SOURCE_FOLDER --output FILE

What the sources have and this program does not understand is an error, so that no function is left out in silence."""
import argparse
import glob
import os
import re
import sys
import textwrap

WIDTH = 120


def fail(why):
    sys.exit(f"generate.py: {why}")


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


# ---- manual pages ----


class Page:
    """A manual page: what it is about, whether the call is collective, parameters, options, and notes."""

    def __init__(self, name, text):
        head, _, body = text.rstrip().partition("\n\n") # a title may go on in a second line
        self.name, self.title, self.collective = name, " ".join(head.split()), ""
        self.sections = {}
        section = None
        body, _, see_also = body.partition(".seealso:")
        self.see_also = " ".join(see_also.split())
        for line in textwrap.dedent(body).strip("\n").split("\n"):
            heading = re.fullmatch(r"([A-Z][A-Za-z ]+):\s*(.*)", line.strip())
            if heading and heading.group(1) != "Level" and not heading.group(2):
                section = heading.group(1).rstrip("s")
                self.sections[section] = []
            elif heading and heading.group(1) == "Level":
                section = None
            elif section:
                self.sections[section].append(line)
            elif re.search(r"\b[Cc]ollective\b", line):
                self.collective = line.strip()
        self.text = text

    def items(self, section):
        """(name, text) of each line "+ name - text" of a section, whose text may go on in the next lines."""
        found = []
        for line in self.sections.get(section, []):
            item = re.match(r"[+.-]\s+(\S.*?)\s+- (.*)", line)
            if item:
                found.append([item.group(1), item.group(2)])
            elif line.strip() and found:
                found[-1][1] += " " + line.strip()
        return found

    def prose(self, section):
        return textwrap.dedent("\n".join(self.sections.get(section, []))).strip("\n")


def read_pages(source):
    pages = {}
    paths = [f"{source}/include/finepc.h", *glob.glob(f"{source}/src/**/*.cxx", recursive=True)]
    for path in sorted(paths):
        for text in re.findall(r"/\*(?:@C?|MC|E)\n(.*?)\n(?:@|M|E)\*/", read(path), re.S):
            title = re.match(r"  (\w+) - (.*)", text, re.S)
            if not title:
                fail(f"{path}: a manual page without a title: {text[:60]}")
            pages[title.group(1)] = Page(title.group(1), title.group(2))
    return pages


def docstring(lines, indent):
    text = "\n".join(lines).strip("\n").replace('"""', "'''")
    text = textwrap.indent(text, indent).strip()
    return f'{indent}{"r" if chr(92) in text else ""}"""{text}\n{indent}"""\n'


def in_python(text):
    """What the manual pages say of C, for a reader who sees values and lists that Python owns"""
    text = re.sub(r"; or `NULL` if (it is|they are) not wanted", "", text)
    freed = r"destroys each of them with\s+`MatDestroy\(\)`, and frees both arrays with `PetscFree\(\)`\."
    text = re.sub(rf"(?<=[.\n])\s*The caller\s+{freed}", "", text)
    text = text.replace(" that the caller destroys with `MatDestroy()`", "")
    for c, python in (("PETSC_TRUE", "True"), ("PETSC_FALSE", "False"), ("NULL", "None")):
        text = re.sub(rf"`{c}`|\b{c}\b", f"`{python}`", text)
    return text


def fill(text, indent=""):
    return textwrap.fill(" ".join(text.split()), WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False)


def describe(page, inputs, outputs, defaults):
    """The docstring of a function in the form that numpy's and petsc4py's have."""
    # The first line of a docstring is short; where the title does not fit it goes on below.
    lines = [fill(page.title), ""]
    if page.collective:
        lines += [page.collective + ".", ""]
    texts = dict(page.items("Input Parameter") + page.items("Output Parameter"))
    named = {name.strip(): text for names, text in texts.items() for name in names.split(",")}

    def parameters(title, of):
        if of:
            lines.extend([title, "-" * len(title)])
            for name, kind in of:
                if name not in named:
                    fail(f"the manual page of {page.name} says nothing about {name}")
                lines.extend([f"{name} : {kind}", fill(in_python(named[name]), "    ")])
            lines.append("")

    parameters("Parameters", inputs)
    parameters("Returns", outputs)
    if page.items("Options Database Key"):
        lines += ["Options", "-------"]
        for key, text in page.items("Options Database Key"):
            name = key.split()[0]
            lines += [f"{name} <{defaults[name]}>" if name in defaults else key, fill(text, "    ")]
        lines.append("")
    if page.prose("Note"):
        lines += ["Notes", "-----", in_python(page.prose("Note")), ""]
    if page.see_also:
        lines += ["See Also", "--------", fill(page.see_also), ""]
    return docstring(lines, "    ")


# ---- what the header declares ----


def constants(header):
    """(name, value) of the names of types"""
    return re.findall(r'^# *define ((?:PC|KSP|MAT)\w+)\s+"(\w+)"', header, re.M)


def enumerations(header):
    """(type, names of its values, name of its array of texts)"""
    for values, name, array in re.findall(r"typedef enum \{([^}]*)\} (\w+);\nPETSC_EXTERN const char \*const (\w+)\[\];", header):
        yield name, [value.strip() for value in values.split(",")], array


def functions(header):
    """(name, types of the arguments) of everything that a program calls with an object"""
    for name, arguments in re.findall(r"^PETSC_EXTERN PetscErrorCode (\w+)\(([^;]*)\);", header, re.M):
        if arguments != "void":
            yield name, [" ".join(argument.split()) for argument in arguments.split(",")]


# type in C -> (type in Python, function of _petsc that makes the argument, function of _petsc that gets a value)
PLAIN = {
    "PetscInt": ("int", "integer", "get_integer"),
    "PetscReal": ("float", "real", "get_real"),
    "PetscLogDouble": ("float", "real", "get_real"),
    "PetscBool": ("bool", "boolean", "get_boolean"),
    "MatOrderingType": ("str", "text", "get_text"),
    "MatFactorShiftType": ("int", "enumeration", "get_enumeration"), # a value of PETSc.Mat.FactorShiftType
}
OBJECTS = {"PC": "pc", "KSP": "ksp"}


def write_enumeration(name, values, page):
    texts = {}
    for item, text in page.items("Value"):
        named = re.fullmatch(r"`(\w+)` \((\w+)\)", item)
        if not named:
            fail(f"the manual page of {name} has a value {item!r} without its word in options")
        texts[named.group(1)] = named.group(2), text
    if list(texts) != values:
        fail(f"the manual page of {name} has the values {list(texts)}, the header {values}")
    lines = [f"{page.title[0].upper()}{page.title[1:]}", "", "Attributes", "----------"]
    for value in values:
        word, text = texts[value]
        lines += [f"{word.upper()}", fill(f"`{value}`: {text}", "    ")]
    out = f"class {name}(_enum.IntEnum):\n{docstring(lines, '    ')}\n"
    for number, value in enumerate(values):
        out += f"    {texts[value][0].upper()} = {number}\n"
    out += "\n\n"
    for value in values:
        out += f"{value} = {name}.{texts[value][0].upper()}\n"
    return out


def parameter_names(page, section):
    return [name.strip() for names, _ in page.items(section) for name in names.split(",")]


def write_setter(name, kinds, enums, page, defaults):
    names = parameter_names(page, "Input Parameter")
    if len(names) != len(kinds):
        fail(f"the manual page of {name} has the parameters {names}, the header {kinds}")
    parameters, described, passed = [], [], []
    for argument, kind in zip(names, kinds):
        if kind in OBJECTS:
            annotation, maker = f"PETSc.{kind}", f"_petsc.{OBJECTS[kind]}({argument})"
        elif kind == "Mat":
            annotation, maker = "PETSc.Mat | None", f"_petsc.mat({argument})"
        elif kind in enums:
            annotation, maker = f"{kind} | str", f"_petsc.enumeration({argument}, {kind})"
        elif kind in PLAIN:
            annotation, maker = PLAIN[kind][0], f"_petsc.{PLAIN[kind][1]}({argument})"
        else:
            fail(f"{name} takes a {kind}, which Python has no type for here")
        parameters.append(f"{argument}: {annotation}")
        described.append((argument, annotation.replace("PETSc.", "petsc4py.PETSc.")))
        passed.append(maker)
    return (f"def {name}({', '.join(parameters)}) -> None:\n{describe(page, described, [], defaults)}"
            f"    _petsc.call(\"{name}\", {', '.join(passed)})\n")


def write_getter(name, kinds, enums, page, defaults):
    inputs, outputs = parameter_names(page, "Input Parameter"), parameter_names(page, "Output Parameter")
    if len(inputs) != 1 or len(inputs) + len(outputs) != len(kinds) or kinds[0] not in OBJECTS:
        fail(f"the manual page of {name} has the parameters {inputs} and {outputs}, the header {kinds}")
    argument, of = inputs[0], kinds[0]
    target, kinds = f"_petsc.{OBJECTS[of]}({argument})", kinds[1:]
    borrowed, owned = "borrowed reference" in page.text, "`MatDestroy()`" in page.text
    if any("Mat *" in kind for kind in kinds) and borrowed == owned:
        fail(f"the manual page of {name} does not say whether the caller destroys the matrix")
    if kinds == ["PetscInt *", "Mat *[]", "Mat *[]"] and owned: # their number first, which Python's lists know
        types = ["list[PETSc.Mat]"] * 2
        outputs, body = outputs[1:], f'_petsc.get_hierarchy("{name}", {target})'
    elif kinds == ["PetscInt *", "const PetscInt *[]", "const KSPConvergedReason *[]"]:
        types = ["list[int]"] * 2 # the second of values of PETSc.KSP.ConvergedReason
        outputs, body = outputs[1:], f'_petsc.get_columns("{name}", {target})'
    elif set(kinds) == {"Mat *"} and owned:
        types = ["PETSc.Mat"] * len(kinds)
        body = f'_petsc.get_matrices("{name}", {target})' if len(kinds) == 2 else fail(f"{name} gives {len(kinds)} matrices")
    elif kinds == ["PC *"] and borrowed:
        types, body = ["PETSc.PC"], f'_petsc.get_borrowed_pc("{name}", {target})'
    elif kinds == ["Mat *"]:
        types, body = ["PETSc.Mat | None"], f'_petsc.get_borrowed("{name}", {target})'
    elif len(kinds) == 1 and kinds[0].endswith(" *"):
        kind = kinds[0][:-2]
        if kind in enums:
            types, body = [kind], f'{kind}(_petsc.get_enumeration("{name}", {target}))'
        elif kind in PLAIN:
            types, body = [PLAIN[kind][0]], f'_petsc.{PLAIN[kind][2]}("{name}", {target})'
        else:
            fail(f"{name} gives a {kind}, which Python has no type for here")
    else:
        fail(f"{name} gives {kinds}, which Python has no type for here")
    annotation = types[0] if len(types) == 1 else f"tuple[{', '.join(types)}]"
    long_name = [(output, kind.replace("PETSc.", "petsc4py.PETSc.")) for output, kind in zip(outputs, types)]
    return (f"def {name}({argument}: PETSc.{of}) -> {annotation}:\n"
            f"{describe(page, [(argument, f'petsc4py.PETSc.{of}')], long_name, defaults)}    return {body}\n")


HEAD = '''"""Constants, enumerations, setters and getters of finepc; written by python/generate.py from the C sources."""
from __future__ import annotations

import enum as _enum
import typing as _typing

from . import _petsc

if _typing.TYPE_CHECKING:
    from petsc4py import PETSc
'''


def generate(source):
    header, pages = read(f"{source}/include/finepc.h"), read_pages(source)
    version = [re.search(rf"^#define FINEPC_VERSION_{part}\s+(\d+)", header, re.M) for part in ("MAJOR", "MINOR", "SUBMINOR")]
    if None in version:
        fail("no version in include/finepc.h")
    out = [HEAD, f'__version__ = "{".".join(number.group(1) for number in version)}"\n']
    public, names = ["__version__"], []

    def page_of(name):
        return pages.get(name) or fail(f"{name} has no manual page")

    types = constants(header)
    out.append("# names of types, for setType() of a petsc4py PC, KSP or Mat\n" + "".join(f'{n} = "{v}"\n' for n, v in types))
    public += [name for name, _ in types]
    enums = set()
    for name, values, _ in enumerations(header):
        enums.add(name)
        out.append(write_enumeration(name, values, page_of(name)))
        public += [name, *values]
    # the page of a type gives the default of each option, which the test of the documentation compares with that in use
    defaults = {key: value for name, _ in types if name in pages
                for key, value in re.findall(r"^[+.-]\s+(-\w+) <(.*?)> - ", textwrap.dedent(pages[name].text), re.M)}
    for name, kinds in functions(header):
        if "Create_" in name: # for PCRegister() in C
            continue
        write = write_setter if re.search(r"Set[A-Z]", name) else write_getter
        out.append(write(name, kinds, enums, page_of(name), defaults))
        names.append(name)
    if len(enums) < 5 or len(names) < 50 or len(types) < 5:
        fail("include/finepc.h is not as it was")
    manual = {name: f"{pages[name].name} - {pages[name].text}" for name, _ in types if name in pages}
    out.append("# the manual pages of the types\nMANUAL_PAGES = {\n"
               + "".join(f"    {name!r}: {clean(text)!r},\n" for name, text in manual.items()) + "}\n")
    out.append("__all__ = [\n" + "".join(f'    "{name}",\n' for name in public + names) + "]\n")
    return "\n\n".join(out)


def clean(text):
    """A manual page for a terminal"""
    head, _, body = text.partition("\n")
    return f"{head}\n{textwrap.dedent(body)}".rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    parser.add_argument("--output", required=True)
    options = parser.parse_args()
    text = generate(options.source)
    os.makedirs(os.path.dirname(os.path.abspath(options.output)), exist_ok=True)
    with open(options.output, "w", encoding="utf-8") as f:
        f.write(text)


if __name__ == "__main__":
    main()
