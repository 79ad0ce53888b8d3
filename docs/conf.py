"""Sphinx configuration: the pages are MyST, the reference is made from the docstrings (numpydoc)."""

import json
import runpy
import shutil
import sys
from importlib import metadata
from pathlib import Path

from docutils import nodes
from numpydoc.xref import DEFAULT_LINKS
from sphinx.util.docutils import SphinxDirective

import fastfedrec

sys.path += [str(Path(__file__).parent), str(Path(__file__).parent / "_figures")]
import accuracy
import comparisons
import draw as figure_of
import hardening
import notebook_pages
import table_downloads
from flows import FLOWS
from reference_pages import Reference

reference = Reference(Path(__file__).with_name("reference") / "index.md")

project = "fastfedrec"
author = "The fastfedrec developers"
copyright = author
version = release = fastfedrec.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "myst_parser",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "sphinx_design",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "_generated"]
myst_enable_extensions = ["attrs_inline", "colon_fence", "dollarmath"]
myst_heading_anchors = 3

autosummary_generate = False  # reference_pages.py writes these pages, by public name
default_role = "py:obj"  # a name in backticks in a docstring is a link if it is public
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # numpydoc gives the types, with shapes
numpydoc_show_class_members = False
numpydoc_xref_param_type = True
# Types of other packages stay text: links to them would need a request over the network.
numpydoc_xref_aliases = {word: word for word in DEFAULT_LINKS} | reference.by_word
numpydoc_xref_ignore = "all"

# The build executes every script; an error in one is an error of the build.
sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "abort_on_example_error": True,
    "capture_repr": (),  # a plot's last line would show the address of its legend
    "download_all_examples": False,
    "min_reported_time": float("inf"),
    "write_computation_times": False,
    "reset_modules_order": "before",
    "within_subsection_order": "FileNameSortKey",
    "remove_config_comments": True,
}

# write_mathjax copies MathJax there, so that pages show formulas without a network.
mathjax_path = "mathjax/tex-svg.js"

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True

# Readers should not see the blank line that ends a doctest in Markdown.
highlight_options = {"python": {"stripnl": True}}

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["layout.css"]
html_js_files = ["scrolling.js"]
html_title = "fastfedrec"


def colours(brand):
    """Return the theme's variables for links, the navigation and boxes of guarantees in one colour."""
    names = ("color-brand-primary", "color-brand-content", "color-admonition-title")
    return dict.fromkeys(names, brand) | {"color-admonition-title-background": f"{brand}26"}  # 26 is an opacity of 15%


html_favicon = "_static/mark-light.svg"
html_theme_options = {
    "light_logo": "mark-light.svg",
    "dark_logo": "mark-dark.svg",
    "light_css_variables": colours("#0b6e69"),
    "dark_css_variables": colours("#56c7bd"),
}


def write_tables(app):
    """Write the generated parts of pages; no commit contains them, so they always match the tree."""
    root = Path(app.srcdir).parent
    sys.path += [str(root / "tests"), str(root)]  # after the installed package: the checkout's has no kernels
    from mutants import MUTANTS
    from mutants.page import lists

    from benches import figures, revisions
    from fastfedrec.accounting._ledger_format import SCHEMA

    folder = Path(app.srcdir) / "_generated"
    folder.mkdir(exist_ok=True)
    (folder / "ledger.schema.json").write_text(json.dumps(SCHEMA, indent=1) + "\n")
    (folder / "mutants.md").write_text(lists(MUTANTS))
    peers = runpy.run_path(str(root / ".ci" / "peers.py"))
    (folder / "peers.md").write_text(peers["table"](peers["FEATURES"]))
    runs, slower = figures.read_kept(), json.loads(figures.SLOWER.read_text())
    (folder / "speed.md").write_text(figures.format_table(runs, figures.read_targets()))
    (folder / "slower.md").write_text(figures.format_slower(runs, slower))
    (folder / "history.md").write_text(revisions.format_page())
    (folder / "fuzzing.md").write_text(hardening.format_fuzzing())
    (folder / "kills.md").write_text(hardening.format_kills())
    (folder / "memory.md").write_text(hardening.format_memory())
    (folder / "soak.md").write_text(hardening.format_soak())
    (folder / "timing.md").write_text(hardening.format_timing())


class MessageFlow(SphinxDirective):
    """A directive for the figure of the messages in the named system."""

    required_arguments = 1

    def run(self):
        (name,) = self.arguments
        return [nodes.raw("", figure_of.draw(FLOWS[name], name), format="html")]


class AccuracyPlot(SphinxDirective):
    """A directive for the plot of the named system's accuracy, with a caption that names the data."""

    required_arguments = 1

    def run(self):
        svg, data = accuracy.plot(*self.arguments)
        return [nodes.raw("", svg, format="html"), nodes.paragraph("", nodes.Text(f"The plot: {data}."))]


class ComparisonPlot(SphinxDirective):
    """A directive for a plot that compares a paper's figure or table with ours, from the page's own tables."""

    required_arguments = 1

    def run(self):
        self.env.note_dependency(comparisons.__file__)
        return [nodes.raw("", comparisons.plot(*self.arguments), format="html")]


def write_mathjax(app, exception):
    """Copy MathJax and its license, which is also ours, into the pages."""
    # This version of MathJax is one file that draws SVG, so that it requests no fonts.
    if exception is None:
        (source,) = (file for file in metadata.files("sphinx-mathjax-offline") if file.match("mathjax/tex-svg.js"))
        folder = Path(app.outdir) / "_static" / "mathjax"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.locate(), folder / source.name)
        shutil.copyfile(Path(app.srcdir).parent / "LICENSE", folder / "LICENSE")


def setup(app):
    reference.connect(app)
    table_downloads.connect(app)
    notebook_pages.connect(app)
    app.connect("builder-inited", write_tables)
    app.connect("build-finished", write_mathjax)
    app.add_directive("message-flow", MessageFlow)
    app.add_directive("accuracy-plot", AccuracyPlot)
    app.add_directive("comparison-plot", ComparisonPlot)
