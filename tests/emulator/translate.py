#!/usr/bin/env python3
"""Writes the CUDA sources as C++ that the emulator runs: translate.py CUDA_FOLDER OUTPUT_FOLDER

The compiler cannot take four things of the language as they are, and these alone are changed, line by line:

  kernel<<<grid, block, bytes, stream>>>(arguments)   becomes a call of emulator::Launch()
  __shared__ T a[n], b;                               becomes static, and tells the emulator where it is
  extern __shared__ T a[];                            becomes a pointer to what the launch asked for
  asm("text" : outputs : inputs)                      becomes a call of emulator::Assembly("text"), and nothing without a text

A file is written only if it has changed, so that nothing else is compiled again.
"""
import pathlib
import re
import sys

CLOSING = {"(": ")", "[": "]", "{": "}"}


def blank_comments(text):
    """The text with comments and strings blanked out, so that places in it are those of the text."""
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)


def closing(text, at):
    """The place of the bracket that closes the one at this place."""
    depth = 0
    for k in range(at, len(text)):
        depth += (text[k] in "([{") - (text[k] in ")]}")
        if depth == 0:
            return k
    raise ValueError("a bracket is not closed")


def split(text, separator=",", angles=False):
    """The parts between separators that are in no bracket."""
    blank, parts, depth, begin = blank_comments(text), [], 0, 0
    for k, c in enumerate(blank):
        depth += (c in "([{" + "<" * angles) - (c in ")]}" + ">" * angles)
        if depth == 0 and c == separator:
            parts.append(text[begin:k])
            begin = k + 1
    return parts + [text[begin:]]


def begin_of_name(blank, end):
    """Where the name of a kernel, with its template arguments, begins that ends here."""
    at = len(blank[:end].rstrip())
    if blank[at - 1] == ">":
        depth = 0
        while True:
            at -= 1
            depth += (blank[at] == ">") - (blank[at] == "<")
            if depth == 0:
                break
    return re.search(r"[\w:]*$", blank[:at]).start()


def translate_launches(text):
    while "<<<" in (blank := blank_comments(text)):
        at = blank.index("<<<")
        end = blank.index(">>>", at)
        begin = begin_of_name(blank, at)
        arguments = blank.index("(", end)
        last = closing(blank, arguments)
        text = (text[:begin] + "emulator::Launch(emulator::Shape(" + text[at + 3:end] + "), [&] { " + text[begin:at] +
                text[end + 3:last + 1] + "; })" + text[last + 1:])
    return text


def translate_shared(text):
    while match := re.search(r"\b(extern\s+)?__shared__\b", blank := blank_comments(text)):
        end = match.end()
        while blank[end] != ";":
            end = closing(blank, end) + 1 if blank[end] in CLOSING else end + 1
        declared = text[match.end():end]
        if match.group(1):
            declared = re.sub(r"__align__\(\d+\)", "", declared)
            kind, name = re.fullmatch(r"\s*(.*?)\s*(\w+)\[\]", declared, flags=re.S).groups()
            new = f"{kind} *const {name} = ({kind} *)emulator::DynamicShared()"
        else:
            names = [re.search(r"(\w+)\s*(\[.*)?$", part.strip(), flags=re.S).group(1) for part in split(declared, angles=True)]
            new = "static " + declared.lstrip() + "".join(f"; emulator::Shared(&{name}, sizeof({name}))" for name in names)
        text = text[:match.start()] + new + text[end:]
    return text


def translate_assembly(text):
    at = 0
    while match := re.compile(r"\basm\s*(volatile\s*)?\(").search(blank_comments(text), at):
        end = closing(blank_comments(text), match.end() - 1)
        instruction = text[text.index('"', match.end()) + 1:].split('"')[0]
        new = f'emulator::Assembly("{instruction}")' if instruction else "(void)0"
        new += "\n" * (text.count("\n", match.start(), end) - new.count("\n"))
        text = text[:match.start()] + new + text[end + 1:]
        at = match.start() + len(new)
    return text


def main():
    source, output = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    for path in sorted(p for p in source.rglob("*") if p.suffix in (".cu", ".cuh", ".h")):
        text = f'#line 1 "{path}"\n' + translate_assembly(translate_shared(translate_launches(path.read_text())))
        to = output / path.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True)
        if not to.exists() or to.read_text() != text:
            to.write_text(text)


if __name__ == "__main__":
    main()
