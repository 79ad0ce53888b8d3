"""The decision in a model file: kept, absent in files of earlier versions, and refused if it is malformed."""

import pytest
from support.hostile_files import change_header

from fastfedrec import DPGram, Key, datasets, load

KEY = Key.from_seed(3)


@pytest.fixture(scope="module")
def model():
    return DPGram(8.0).fit(datasets.generate_implicit(3000, 40, key=KEY), key=KEY)


@pytest.mark.parametrize("include_users", [True, False])
def test_a_loaded_model_has_the_decision(model, tmp_path, include_users):
    assert model.decision_ is not None
    model.save(tmp_path / "m", include_users=include_users)
    assert load(tmp_path / "m").decision_ == model.decision_


def test_a_file_of_an_earlier_version_has_none(model, tmp_path):
    model.save(tmp_path / "m")
    change_header(tmp_path / "m", lambda header: header.pop("decision"))
    assert load(tmp_path / "m").decision_ is None


@pytest.mark.parametrize(
    "change",
    [
        lambda decision: decision.update(chosen=99),
        lambda decision: decision.update(chosen=True),
        lambda decision: decision.update(gain="1"),
        lambda decision: decision.update(error=10**400),
        lambda decision: decision.update(more=1),
        lambda decision: decision.pop("gain"),
        lambda decision: decision["candidates"][0].pop(),
        lambda decision: decision["candidates"][0].__setitem__(0, True),
        lambda decision: decision["candidates"][0].__setitem__(2, ["pairs"]),
        lambda decision: decision.update(candidates=3),
    ],
)
def test_a_malformed_decision_is_refused(model, tmp_path, change):
    model.save(tmp_path / "m")
    change_header(tmp_path / "m", lambda header: change(header["decision"]))
    with pytest.raises(ValueError, match="decision: must be a decision among candidates, got"):
        load(tmp_path / "m")
