"""Tests of the command that lists systems."""

import json

from fastfedrec.cli.main import main
from fastfedrec.core.names import SYSTEMS
from fastfedrec.systems.registry import system_class


def test_all_of_them_with_all_parameters(capsys):
    assert main(["systems", "--json"]) == 0
    systems = json.loads(capsys.readouterr().out)["systems"]
    assert [system["name"] for system in systems] == list(SYSTEMS)
    for system in systems:
        model = system_class(system["name"])()
        given = {parameter["name"]: parameter["default"] for parameter in system["parameters"]}
        assert given == json.loads(json.dumps(model.get_params()))
        for parameter in system["parameters"]:
            assert parameter["description"].endswith((".", ")"))
            assert parameter["type"] != "object"


def test_some_as_text(capsys):
    assert main(["systems", "DPGram", "popularity"]) == 0
    out = capsys.readouterr().out
    for part in ("dp-gram (DPGram), trust: central", "Guarantee. All releases together", "mean_share", "0.07"):
        assert part in out
    assert "popularity (Popularity), trust: none" in out
    assert "It has no parameters." in out
    assert "fmf-ldp" not in out
