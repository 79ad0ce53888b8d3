"""Tests of the command that shows the package's pages."""

import pydoc
import sys

import pytest
from support.cli_case import refusal, run_json

from fastfedrec.cli import docs
from fastfedrec.cli.main import main
from fastfedrec.core.documentation import find_pages


def test_the_list_has_every_page_with_its_title(capsys):
    assert main(["docs"]) == 0
    out = capsys.readouterr().out
    pages = find_pages()
    assert len(pages) > 15
    for topic in pages:
        assert f"\n{topic} " in out
    assert "Read a ledger" in out
    assert docs.complete_topic() == list(pages)


def test_a_topic_prints_its_page_and_with_path_its_file(capsys):
    page = find_pages()["read-a-ledger"]
    for words in (["read-a-ledger"], ["Read", "a", "ledger"]):
        assert main(["docs", *words]) == 0
        assert capsys.readouterr().out.strip() == page.read_text().strip()
    assert main(["docs", "read-a-ledger", "--path"]) == 0
    assert capsys.readouterr().out == f"{page}\n"


def test_a_terminal_gets_the_page_in_a_pager(capsys, monkeypatch):
    shown = []
    monkeypatch.setattr(pydoc, "pager", shown.append)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main(["docs", "limits"]) == 0
    assert shown == [find_pages()["limits"].read_text()]
    assert capsys.readouterr().out == ""


def test_words_find_exactly_the_pages_that_contain_them(capsys):
    words = ["shuffler", "Flower"]
    expected = {t for t, p in find_pages().items() if all(word.lower() in p.read_text().lower() for word in words)}
    found = run_json(capsys, "docs", *words)["pages"]
    assert {page["topic"] for page in found} == expected
    assert 0 < len(found) < len(find_pages())
    assert "Flower" in next(page["title"] for page in found if page["topic"] == "deploy-with-flower")


def test_pages_that_explain_the_words_are_first(capsys):
    topics = [page["topic"] for page in run_json(capsys, "docs", "true", "epsilon")["pages"]]
    assert "glossary" in topics
    explains = ["\ntrue epsilon" in find_pages()[topic].read_text().lower() for topic in topics]
    assert explains == sorted(explains, reverse=True)
    assert any(explains)
    assert not all(explains)


def test_words_without_a_page_are_refused_with_a_suggestion(capsys, monkeypatch):
    error = refusal(capsys, "docs", "read-a-leger")
    assert "no page contains 'read-a-leger' (did you mean 'read-a-ledger'?)" in error
    monkeypatch.setattr(docs, "find_pages", dict)
    assert "reinstall it" in refusal(capsys, "docs")


def test_the_help_names_the_command(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    assert "docs" in out
    assert "  fastfedrec docs\n" in out
