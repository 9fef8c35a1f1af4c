"""Sphinx's settings for the site; scripts/docs builds it."""
import json
import pathlib
import re
import sys

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.util.docutils import SphinxDirective

here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here))
import results  # noqa: E402

header = (here.parent / "include/finepc.h").read_text()

project = "finepc"
author = "the finepc authors"
copyright = author
release = ".".join(re.findall(r"#define FINEPC_VERSION_\w+\s+(\d+)", header))
version = release

extensions = ["myst_parser", "sphinx_copybutton"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
copybutton_exclude = ".linenos, .gp, .go"
root_doc = "index"
html_theme = "pydata_sphinx_theme"
html_title = f"finepc {release}"
html_static_path = ["_static"]
html_css_files = ["finepc.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 9,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}
# A page that belongs to no section has no sidebar.
html_sidebars = {page: [] for page in [*(path.stem for path in here.glob("*.md")), "generated/contributing", "generated/changelog"]}
html_math_renderer = "mathml"
exclude_patterns = ["generated/fragments/**", "shared/**", "README.md"]
# The names of manual pages and option keys -> their pages; written by generate.py.
pages = json.loads((here / "generated/pages.json").read_text())

# PETSc's own manual pages lie in a folder for each of its packages. Names whose folder is not certain are not linked.
PETSC = "https://petsc.org/release/manualpages"
PETSC_FOLDERS = {"KSP": "KSP", "PC": "PC", "Mat": "Mat", "MAT": "Mat", "Vec": "Vec", "VEC": "Vec", "SNES": "SNES"}
PETSC_OTHERS = {"PetscInitialize": "Sys", "PetscFinalize": "Sys", "DMDA": "DMDA", "MatGetDM": "DM", "PetscOptionsSetValue": "Sys",
                "PetscDLLibraryAppend": "Sys"}
NOT_CERTAIN = re.compile(r"MatOrdering|MATORDERING|MatFactor|MatStencil|MATSOLVER|PETSC_|MAT_|PC_|KSP_")
INTERNAL = ("generated/contributing", "generated/benchmark")  # names of our own functions without manual pages are there, too


def address(name, builder, page):
    """Where a name in backticks leads to, or None."""
    if name in pages:
        return builder.get_relative_uri(page, pages[name]) if pages[name] != page else None
    plain = name.removesuffix("()")
    if plain in pages:
        return builder.get_relative_uri(page, pages[plain]) if pages[plain] != page else None
    if page in INTERNAL:
        return None
    if plain in PETSC_OTHERS:
        return f"{PETSC}/{PETSC_OTHERS[plain]}/{plain}/"
    package = re.fullmatch(r"(KSP|PC|Mat|MAT|Vec|VEC|SNES)\w+", plain)
    if package and not NOT_CERTAIN.match(plain) and (plain.isupper() or re.fullmatch(r"[A-Z]\w*[a-z]\w*", plain)):
        return f"{PETSC}/{PETSC_FOLDERS[package.group(1)]}/{plain}/"
    return None


def link_names(app, doctree, page):
    """Each name in backticks that has a manual page, ours or PETSc's, becomes a link; so does each of our option keys."""
    for literal in list(doctree.findall(nodes.literal)):
        parent = literal.parent
        while parent is not None and not isinstance(parent, (nodes.reference, nodes.title)):
            parent = parent.parent
        if parent is not None:
            continue
        uri = address(literal.astext(), app.builder, page)
        if uri:
            reference = nodes.reference("", "", internal=not uri.startswith("http"), refuri=uri)
            literal.replace_self(reference)
            reference += literal


# On narrow screens rows of these tables become blocks, a cell below the other.
STACKED = (["option", "default", "meaning"], ["what you see", "what it means", "what to do"])


def wrap_tables(app, doctree, page):
    """Wide tables scroll by themselves, so that a page stays as wide as the screen; finepc.css knows the classes."""
    for table in list(doctree.findall(nodes.table)):
        if isinstance(table.parent, nodes.container):
            continue
        heads = [entry.astext() for head in table.findall(nodes.thead) for entry in head.findall(nodes.entry)]
        classes = ["wide"]
        if heads in STACKED:
            classes += ["stacked", heads[0].split()[0]]
        if "options" in heads[1:2]:
            classes += ["measured"]
        if len(heads) > 12:
            classes += ["many"]
        box = nodes.container(classes=classes)
        table.replace_self(box)
        box += table


def visit_math(writer, node):
    writer.body.append(latex2mathml.tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def visit_displaymath(writer, node):
    mathml = latex2mathml.tex2mathml(node.astext(), as_block=True)
    writer.body.append(f'<div class="formula wide">{mathml}</div>')
    raise nodes.SkipNode


class Plot(SphinxDirective):
    """{plot} NAME, with a caption: a plot of generate.py."""
    required_arguments = 1
    has_content = True
    option_spec = {"alt": str}

    def run(self):
        figure = nodes.figure(classes=["plot"])
        figure += nodes.image(uri=f"/generated/plots/{self.arguments[0]}.svg", alt=self.options.get("alt", ""))
        caption = nodes.caption()
        caption += self.parse_inline(" ".join(self.content))[0]
        figure += caption
        return [figure]


class Made(SphinxDirective):
    """{made} NAME...: where the figures above come from, files of benchmarks/results."""
    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        line = nodes.paragraph(classes=["made"])
        line += self.parse_inline(results.made(str(here.parent), self.arguments[0].split()))[0]
        return [line]


def setup(app):
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displaymath, None))
    app.add_directive("plot", Plot)
    app.add_directive("made", Made)
    app.connect("doctree-resolved", link_names)
    app.connect("doctree-resolved", wrap_tables)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
