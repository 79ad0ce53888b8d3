"""Requirements for reproduced figures and tables: every form of output, and the command."""

import json

from fastfedrec import doctor
from fastfedrec.cli.main import main

PNG = b"\x89PNG"


def read_instead(monkeypatch, data, reader="load_movielens"):
    """Let the command `reproduce` read these data from any path."""
    monkeypatch.setattr(f"fastfedrec.studies.reproduce.catalogue.{reader}", lambda path: data)


def check_result(result, folder):
    """Return the text and the page of a result, after a check of its plot and its JSON."""
    result.plot(folder / "plot.png")
    assert (folder / "plot.png").read_bytes().startswith(PNG)
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["verdict"] == result.verdict()
    page = result.to_markdown(plot="plot.png")
    assert "](plot.png)" in page
    assert "![" not in result.to_markdown()
    return result.summary(), page


def written(words, out, name, capsys):
    """Return the JSON of `fastfedrec reproduce`, checked: all files agree, and a second run reads its parts."""
    document = _run(words, out, capsys)
    assert document == json.loads((out / f"{name}.json").read_text())
    assert document["machine"] == doctor.describe_machine()
    page = (out / f"{name}.md").read_text()
    assert f"]({name}.png)" in page
    assert f"Written on {document['machine']}." in page
    assert (out / f"{name}.png").read_bytes().startswith(PNG)
    parts = times_of(out / "cells")
    assert _run(words, out, capsys) == document
    assert times_of(out / "cells") == parts
    return document


def _run(words, out, capsys):
    assert main(["reproduce", *words.split(), "--out", str(out), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def times_of(folder):
    """Return when each file of the folder was written, by name; a part that is read keeps its time."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*")}
