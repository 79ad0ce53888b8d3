"""Tests of the pages that wheels contain."""

from pathlib import Path

from fastfedrec.core import documentation

ROOT = Path(__file__).parents[2]
MAX_BYTES = 400_000  # of all pages in a wheel, before compression


def test_the_pages_are_those_of_the_patterns_without_lists_of_links():
    found = documentation.list_pages(ROOT)
    assert {path.parent.name for path in found} == {"tutorial", "how-to", "explanation", "evaluation"}
    assert ROOT / "docs/how-to/load-data.md" in found
    assert ROOT / "docs/how-to/index.md" not in found
    assert {"faq", "glossary", "limits", "metrics"} < {path.stem for path in found}
    assert ROOT / "docs/explanation/systems/index.md" not in found
    assert sum(path.stat().st_size for path in found) < MAX_BYTES


def test_a_page_is_known_by_its_path_alone():
    assert documentation.is_page("docs/how-to/new.md")
    for name in ("docs/how-to/index.md", "docs/how-to/ruff.toml", "docs/explanation/accounting/pld.md", "README.md"):
        assert not documentation.is_page(name)


def test_topics_are_unique_and_an_installed_page_comes_first(tmp_path, monkeypatch):
    found = documentation.find_pages()
    assert len(found) == len(documentation.list_pages(ROOT))
    installed = tmp_path / "fastfedrec" / "docs" / "how-to" / "only.md"
    installed.parent.mkdir(parents=True)
    installed.write_text("# Only\n")
    monkeypatch.setattr(documentation, "__file__", str(tmp_path / "fastfedrec" / "core" / "documentation.py"))
    assert documentation.find_pages() == {"only": installed}
