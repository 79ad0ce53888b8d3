"""What every reproduced figure or table must be: told in every form, and written by the command."""

import json

from fastfedrec import doctor
from fastfedrec.cli.main import main

PNG = b"\x89PNG"


def told(found, folder):
    """Its text and its page, after a check that it can be drawn, and be written as JSON."""
    found.plot(folder / "plot.png")
    assert (folder / "plot.png").read_bytes().startswith(PNG)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["verdict"] == found.verdict()
    page = found.to_markdown(plot="plot.png")
    assert "](plot.png)" in page
    assert "![" not in found.to_markdown()
    return found.summary(), page


def written(words, out, name, capsys):
    """What `fastfedrec reproduce` prints as JSON, after a check that it writes the same, a page of it and a plot."""
    assert main(["reproduce", *words.split(), "--out", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads((out / f"{name}.json").read_text())
    assert document["machine"] == doctor.describe_machine()
    page = (out / f"{name}.md").read_text()
    assert f"]({name}.png)" in page
    assert f"Written on {document['machine']}." in page
    assert (out / f"{name}.png").read_bytes().startswith(PNG)
    return document
