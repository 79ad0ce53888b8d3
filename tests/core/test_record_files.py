"""JSON with one record a line: its form, written out, and every kept file in this form."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfedrec.core.record_files import format_records

ROOT = Path(__file__).parents[2]
FILES = [
    *ROOT.glob("benches/results/*.json"),
    *ROOT.glob("docs/reproductions/*.json"),
    ROOT / "fastfedrec/systems/private_recommender/advice.json",
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=3), parts, max_size=3),
    max_leaves=12,
)


def test_the_form_written_out():
    document = {
        "a": 1,
        "flat": {"b": [], "c": 2},
        "deep": {"d": [1, 2], "e": {}},
        "rows": [{"f": {"g": (1.5, None)}}, [3]],
    }
    assert format_records(document).splitlines() == [
        "{",
        '"a": 1,',
        '"flat": {',
        '"b": [],',
        '"c": 2',
        "},",
        '"deep": {',
        '"d": [1, 2],',
        '"e": {}',
        "},",
        '"rows": [',
        '{"f": {"g": [1.5, null]}},',
        "[3]",
        "]",
        "}",
    ]
    assert format_records({"a": [1, {}]}) == '{\n"a": [\n1,\n{}\n]\n}\n'
    assert format_records({}) == "{}\n"
    assert format_records({1: [2]}) == '{\n"1": [2]\n}\n'


def test_what_json_does_not_have_is_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        format_records({"a": [{"b": float("nan")}]})


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4))
def test_no_value_changes(document):
    assert json.dumps(json.loads(format_records(document))) == json.dumps(document)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_kept_files_have_one_record_a_line(path):
    text = path.read_text()
    document = json.loads(text)
    assert text == format_records(document)
    assert json.dumps(document, indent=1) + "\n" != text  # the control
