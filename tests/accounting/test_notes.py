"""Notes are strings with a kind, which no copy and no file loses."""

import copy
import json
import pickle

import pytest

from fastfedrec.accounting import NOTE_KINDS, Ledger, Note
from fastfedrec.accounting.notes import NOTE_SCHEMA, note_from_json, note_kind, note_to_json

# ---- oracle --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", NOTE_KINDS)
def test_a_note_is_its_text_with_a_kind(kind):
    note = Note("The catalogue is public.", kind)
    assert note == "The catalogue is public."
    assert (note.kind, note_kind(note)) == (kind, kind)
    assert repr(note) == f"Note('The catalogue is public.', {kind!r})"
    assert json.loads(json.dumps([note])) == ["The catalogue is public."]


def test_a_plain_string_is_a_remark():
    assert note_kind("text") == Note("text").kind == note_from_json("text").kind == "remark"
    assert note_to_json("text") == note_to_json(Note("text")) == "text"


# ---- invariants ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", NOTE_KINDS)
def test_every_copy_keeps_the_kind(kind):
    note = Note("text", kind)
    copies = [
        copy.copy(note),
        copy.deepcopy(note),
        pickle.loads(pickle.dumps(note)),
        note_from_json(note_to_json(note)),
    ]
    for one in copies:
        assert (one, one.kind, type(one)) == ("text", kind, Note)


def test_a_note_cannot_change():
    note = Note("text", "choice")
    with pytest.raises(AttributeError):
        note.kind = "guarantee"


def test_a_ledger_keeps_the_first_kind_of_a_text():
    ledger = Ledger()
    ledger.note("text", "not covered")
    ledger.note("text")
    ledger.note(Note("other", "assumption"))
    assert [(note, note.kind) for note in ledger.notes] == [("text", "not covered"), ("other", "assumption")]


def test_the_schema_has_each_kind_with_a_name_of_its_own():
    _, stated = NOTE_SCHEMA["anyOf"]
    assert {*stated["properties"]["kind"]["enum"], "remark"} == set(NOTE_KINDS)


# ---- bad inputs ----------------------------------------------------------------------------------------------------


def test_other_kinds_and_texts_are_refused():
    with pytest.raises(
        ValueError, match=r"kind must be one of 'guarantee', .*, got 'guarantees' \(did you mean 'guarantee'"
    ):
        Ledger().note("text", "guarantees")
    with pytest.raises(TypeError, match="text must be str, got int; pass one or more sentences"):
        Ledger().note(3)
