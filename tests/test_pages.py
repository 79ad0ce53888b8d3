"""Tests of pages: the check of built pages detects faults, links lead to files, and pages stay short."""

import re
import shutil
from pathlib import Path

import pytest
from support.maintainers import load_program

ROOT = Path(__file__).parents[1]
HEAD = '<meta name="viewport" content="width=device-width"><link href="style.css">'
TABLE = '<div class="table-wrapper docutils"><div><table></table></div></div>'


@pytest.fixture(scope="module")
def pages():
    return load_program(".ci/pages")


@pytest.fixture
def faults_of(pages, tmp_path):
    """Return a function from the text of a page to its faults, next to a page without faults."""

    def faults_of(text):
        (tmp_path / "style.css").touch()
        (tmp_path / "other page.html").write_text(HEAD + '<h1 id="top">Other</h1>')
        (tmp_path / "page.html").write_text(text)
        return list(pages.faults(tmp_path))

    return faults_of


def dead_links(path, text):
    """Links of a page of Markdown to files that do not exist."""
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" not in link and not link.startswith("#") and not (path.parent / link.split("#")[0]).exists():
            yield f"{path.name}: {link}"


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_a_page_without_fault_has_none(faults_of):
    links = '<a href="other%20page.html#top">1</a><a href="#here">2</a><a href="https://example.org/no">3</a>'
    wide, printed = "x" * 99, '<div class="script-out"><pre>'
    code = f"<pre>{'x' * 88}</pre>{wide}<pre>&gt;&gt;&gt; 1\n{wide}</pre>{printed}{wide}</pre></div>"
    assert faults_of(f'{HEAD}<p id="here">{links}</p>{TABLE}<table class="indextable"></table>{code}') == []


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "benches/README.md"])
def test_links_in_the_repository_lead_to_files(name):
    assert list(dead_links(ROOT / name, (ROOT / name).read_text())) == []


def test_the_readme_is_understood_at_a_glance():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 90
    assert len(text.split()) <= 700
    parts = [
        "docs/images/utility.svg",
        "pip install",
        ">>> ",
        "docs/images/ledger.png",
        "| trusted |",
        "**Researchers**",
    ]
    positions = [text.find(part) for part in [*parts, "| task |"]]
    assert min(positions) > 0
    assert positions == sorted(positions)


def test_the_list_of_how_to_pages_describes_each():
    folder = ROOT / "docs" / "how-to"
    described = re.findall(r"^- \[[^\]]+\]\(([\w-]+)\.md\): \w", (folder / "index.md").read_text(), re.MULTILINE)
    assert sorted(described) == sorted(path.stem for path in folder.glob("*.md") if path.stem != "index")


def test_all_pages_together_can_be_read():
    """The sum of words is bounded; generated pages do not count."""
    folders = (ROOT.glob("*.md"), *((ROOT / name).rglob("*.md") for name in ("docs", "benches", "examples")))
    pages = [path.relative_to(ROOT) for paths in folders for path in paths]
    # Generated folders and hidden folders are not part of the tree.
    made = re.compile(r"(^|/)(_build|_generated|generated|\..*)/")
    words = {path: len((ROOT / path).read_text().split()) for path in pages if not made.search(path.as_posix())}
    assert len(words) > 50
    assert sum(words.values()) <= 90_000


def test_a_page_of_a_system_is_read_in_one_sitting():
    """Proofs are on separate pages."""
    pages = [path for path in (ROOT / "docs/explanation/systems").glob("*/*.md") if not is_proof(path.stem)]
    assert len(pages) > 12
    assert {path.stem: words for path in pages if (words := len(path.read_text().split())) > 900} == {}


def test_pages_of_systems_keep_to_one_template():
    """Readers see purpose, use, code, guarantee and results before the method."""
    pages = {path.stem: path.read_text() for path in (ROOT / "docs/explanation/systems").glob("*/*.md")}
    # The page of baselines has many models and another order.
    described = {name: text for name, text in pages.items() if not is_proof(name) and name != "baselines"}
    assert len(described) > 12
    assert [name for name, text in described.items() if not keeps_order(text)] == []
    # Controls: an exchange of two sections, and a page without one.
    text = described["dp-gram"]
    exchanged = (
        text.replace("## Limits", "## X").replace("## How it works", "## Limits").replace("## X", "## How it works")
    )
    assert not keeps_order(exchanged)
    assert not keeps_order(text.replace("```{accuracy-plot}", "```"))


PLAN = (
    "## When to use it",
    "```python",
    "```{admonition} Guarantee",
    "```{accuracy-plot}",
    "## Limits",
    "## How it works",
    "```{message-flow}",
)


def keeps_order(text):
    """Check whether a page has a paragraph on its purpose and then all parts of the plan, in its order."""
    positions = [text.find(f"\n{part}") for part in PLAN]
    purpose = text[: positions[0]].partition("\n")[2].strip()
    return bool(purpose) and min(positions) > 0 and positions == sorted(positions)


def is_proof(name):
    return name.endswith("-privacy") or name == "private-kmeans"


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (HEAD + '<a href="gone.html">1</a>', "gone.html leads to no file"),
        (HEAD + '<img src="gone.png">', "gone.png leads to no file"),
        (HEAD + '<a href="other%20page.html#gone">1</a>', "other%20page.html#gone leads to no anchor"),
        (HEAD + '<a href="#gone">1</a>', "#gone leads to no anchor"),
        ('<link href="style.css">', "no viewport, so that phones show it small"),
        (HEAD + TABLE + "<div><table></table></div>", "1 tables that do not scroll by themselves"),
        (HEAD + f"<pre><b>{'x' * 70}</b>{'y' * 19}\nz</pre>", f"code of 89 characters, at most 88: {'x' * 60}"),
    ],
)
def test_each_fault_is_named(faults_of, text, fault):
    assert faults_of(text) == [f"page.html: {fault}"]


def test_a_word_that_the_search_does_not_find_is_named(pages, tmp_path):
    index = '{"docnames":["a","b"],"terms":{"cite":[0,1],"deprec":0},"titleterms":{"instal":[1]}}'
    (tmp_path / "searchindex.js").write_text(f"Search.setIndex({index})")
    queries = {"cite": "b", "deprecate": "a", "install": "b"}
    assert list(pages.unfound(tmp_path, queries)) == []
    wrong = {"deprecate": "b", "recall": "a"}
    assert list(pages.unfound(tmp_path, wrong)) == [
        "the search for 'deprecate' does not find b",
        "the search for 'recall' does not find a",
    ]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium on the path")
def test_a_browser_names_the_page_that_is_too_wide(tmp_path):
    (tmp_path / "good.html").write_text(f'{HEAD}<div style="overflow-x:auto"><pre>{"wide " * 200}</pre></div>')
    (tmp_path / "too wide.html").write_text(f"{HEAD}<pre>{'wide ' * 200}</pre>")
    widths = load_program(".ci/browser").measure(tmp_path, 390, "chromium", 120)
    assert widths["good.html"] == {"excess": 0, "elements": []}
    assert widths["too wide.html"]["excess"] > 390
    assert widths["too wide.html"]["elements"][-1].startswith("pre.: wide wide")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium on the path")
def test_serious_faults_of_axe_are_named_with_the_page(tmp_path):
    """The check covers dark mode: the substitute for axe reports a fault if the page is dark."""
    policy = """<meta http-equiv="Content-Security-Policy" content="default-src 'none'">"""  # as reports have
    (tmp_path / "page.html").write_text(f"{HEAD}{policy}<p>text</p>")
    axe = """window.axe = {run: async page => {
      const found = (id, impact, ...nodes) => ({id, impact, nodes: nodes.map(html => ({html}))});
      const dark = matchMedia("(prefers-color-scheme: dark)").matches ? [found("dark", "critical", "")] : [];
      return {violations: [found("grave", "serious", "<p>", "<b>"), found("small", "minor", "<p>"), ...dark]};
    }}"""
    browser = load_program(".ci/browser")
    light, dark = (browser.measure(tmp_path, 390, "chromium", 120, axe, dark) for dark in (False, True))
    assert light["page.html"]["findings"] == ["grave (2): <p>"]
    assert dark["page.html"]["findings"] == ["grave (2): <p>", "dark (1): "]


def unwritten_files(pages, configuration):
    """Return the links of pages to generated files that the configuration of the documentation does not write."""
    names = {name for text in pages for name in re.findall(r"_generated/([\w.]+)", text)}
    return {name for name in names if f'(folder / "{name}").write_text(' not in configuration}


def test_every_generated_file_that_a_page_has_is_written_with_the_pages():
    pages = [path.read_text() for path in (ROOT / "docs").rglob("*.md") if "_generated" not in path.parts]
    configuration = (ROOT / "docs" / "conf.py").read_text()
    assert unwritten_files(pages, configuration) == set()
    assert unwritten_files(pages, configuration.replace("ledger.schema", "other")) == {"ledger.schema.json"}


def test_the_test_of_links_sees_a_dead_one():
    text = "[a](LICENSE) [b](https://example.org) [c](#start) [d](docs/gone.md#there)"
    assert list(dead_links(ROOT / "README.md", text)) == ["README.md: docs/gone.md#there"]
