"""The manual pages of the sources, in the form of PETSc's, as Markdown."""
import glob
import re
import textwrap
from dataclasses import dataclass, field


@dataclass
class Page:
    kind: str  # @: function, E: enumeration, MC: type
    name: str
    summary: str
    body: list  # lines without their two spaces
    synopsis: str
    source: str
    keys: list = field(default_factory=list)  # of a type: (key, default, meaning)
    sets: list = field(default_factory=list)  # keys whose value the function sets
    type_name: str = ""


HEADING = re.compile(r"(Input Parameters?|Output Parameters?|Options Database Keys?|Values|Notes?|References?|Level):\s*(.*)")
TITLES = {"Input Parameter": "Input parameter", "Input Parameters": "Input parameters", "Output Parameter": "Output parameter",
          "Output Parameters": "Output parameters", "Options Database Key": "Option", "Options Database Keys": "Options",
          "Note": "Note", "Notes": "Notes", "Reference": "Reference", "References": "References", "Values": "Values"}
ITEM = re.compile(r"[+.-] +(.*)")


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def escape(text):
    """Plain text of a manual page as Markdown: what is not in backticks means itself."""
    parts = text.split("`")
    for k in range(0, len(parts), 2):
        parts[k] = re.sub(r"([\\*_<>\[\]|~$#{}])", r"\\\1", parts[k])
    return "`".join(parts)


def collect(root):
    """All pages, by name."""
    pages = {}
    sources = sorted(glob.glob(f"{root}/include/*.h") + glob.glob(f"{root}/src/**/*.cxx", recursive=True))
    for path in sources:
        text = read(path)
        for match in re.finditer(r"^/\*(@C?|E|MC)\n(.*?)\n(?:@|E|M)\*/\n", text, re.M | re.S):
            kind = match.group(1)[0] if match.group(1) != "MC" else "MC"
            lines = [re.sub(r"^  ", "", line).rstrip() for line in match.group(2).split("\n")]
            name, summary = re.match(r"(\w+) - (.*)", lines[0]).groups()
            rest = text[match.end():]
            page = Page(kind, name, summary, lines[1:], synopsis(kind, rest), path[len(root) + 1:])
            if kind == "MC":
                page.type_name, page.summary = re.match(r'"(\w+)"(?::| -) (.*)', summary).groups()
                page.keys = keys(page)
            elif kind == "@" and re.search(r"Set[A-Z]", name):
                page.sets = re.findall(r"^[.+-] (-\w+) <", "\n".join(lines), re.M)
            if name in pages:
                raise SystemExit(f"{name}: two manual pages, in {pages[name].source} and {page.source}")
            pages[name] = page
    return [pages[name] for name in sorted(pages)]


def synopsis(kind, rest):
    if kind == "@":
        return " ".join(re.match(r"(.*?)\s*\{", rest, re.S).group(1).split()) + ";"
    if kind == "E":
        return " ".join(re.match(r"(.*?;)", rest, re.S).group(1).split())
    return ""


def sections(lines):
    """(heading, lines) of each section; the first has none."""
    found = [("", [])]
    for line in lines:
        heading = HEADING.fullmatch(line)
        if heading:
            found.append((heading.group(1), [heading.group(2)] if heading.group(2) else []))
        else:
            found[-1][1].append(line)
    return found


def items(lines):
    """The entries of a list, + . and - at their heads, each with its continuation."""
    entries = []
    for line in lines:
        item = ITEM.fullmatch(line)
        if item:
            entries.append(item.group(1))
        elif line.strip() and entries:
            entries[-1] += " " + line.strip()
    return entries


def keys(page):
    for heading, lines in sections(page.body):
        if heading.startswith("Options Database"):
            found = []
            for entry in items(lines):
                match = re.match(r"(-\w+)(?: <(.*?)>)?(?: \w+)? - (.*)", entry)
                found.append((match.group(1), match.group(2) or "", match.group(3)))
            return [key for key in found if key[0] != "-mat_type"]
    return []


def markdown(page):
    body, see, last = "\n".join(page.body).rstrip(), "", ""
    if ".seealso:" in body:
        body, see = body.split(".seealso:")
    text = [f"# {page.name}", ""]
    text += [escape(page.summary[0].upper() + page.summary[1:]) + ".", ""]
    if page.kind == "MC":
        prefix = {"P": "-pc_type", "K": "-ksp_type", "M": "-mat_type"}[page.name[0]]
        if page.name.startswith("MATSOLVER"):
            prefix = "-pc_factor_mat_solver_type"
        text += [f"`{prefix} {page.type_name}`", ""]
    if page.synopsis:
        wrapped = textwrap.fill(page.synopsis, 76, subsequent_indent="    ", break_long_words=False)
        text += ["```c", "#include <finepc.h>", "", wrapped, "```", ""]
    for heading, lines in sections(body.split("\n")):
        content = "\n".join(lines).strip("\n")
        if heading == "Level":
            last = f"Level: {content.strip()}. Source: `{page.source}`."
            continue
        if heading:
            text += [f"## {TITLES[heading]}", ""]
        if heading.startswith("Options Database") and page.keys:
            text += [option_table(page), ""]
        elif any(ITEM.fullmatch(line) for line in lines):
            for entry in items(lines):
                name, dash, meaning = entry.partition(" - ")
                if name.strip() == "*":  # a list of references
                    text += [f"- {escape(meaning)}"]
                else:
                    name = name.strip().strip("`") if heading != "Values" else name.strip()
                    text += [f"- {name if heading == 'Values' else f'`{name}`'}: {escape(meaning)}"]
            text += [""]
        elif content.strip():
            text += [escape(re.sub(r"(?m)^ +", "", content)), ""]
    if see:
        text += ["## See also", "", escape(" ".join(see.split())), ""]
    return "\n".join(text + [last, ""])


def option_table(page):
    rows = ["| option | default | meaning |", "|:--|:--|:--|"]
    for key, default, meaning in page.keys:
        rows.append(f"| `{key}` | {f'`{default}`' if default else ''} | {escape(meaning)} |")
    return "\n".join(rows) + "\n"


def index(pages):
    text = ["# Manual pages", "", "These pages stand beside the functions in the sources, in the form of PETSc's own.", ""]
    groups = [("Types", [p for p in pages if p.kind == "MC"]),
              ("The package", [p for p in pages if p.kind == "@" and p.name.startswith("FinePC")])]
    for owner in ("PCAFSAI", "PCSFSAI", "PCBISAI", "PCRRB", "PCCMATCH", "PCAUTO", "KSPCGFused", "KSPRRBCG",
                  "KSPGMRESFused"):
        groups.append((f"Functions of {owner.upper()}", [p for p in pages if p.kind == "@" and p.name.startswith(owner)]))
    listed = {p.name for _, members in groups for p in members}
    groups.append(("Other functions", [p for p in pages if p.kind == "@" and p.name not in listed]))
    groups.append(("Enumerations", [p for p in pages if p.kind == "E"]))
    for title, members in groups:
        if not members:
            continue
        text += [f"## {title}", "", "| name | what |", "|:--|:--|"]
        text += [f"| `{p.name}{'()' if p.kind == '@' else ''}` | {escape(p.summary)} |" for p in members] + [""]
    text += ["```{toctree}", ":hidden:", ""] + [p.name for p in pages] + ["```", ""]
    return "\n".join(text)
