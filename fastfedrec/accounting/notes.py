"""Notes of a ledger: sentences for its readers, each with a kind that decides its section on the page for approval."""

from typing import Any

from fastfedrec.core.check import check_choice, check_instance

__all__ = ["NOTE_KINDS", "NOTE_SCHEMA", "Note", "note_from_json", "note_kind", "note_to_json"]

#: The kinds of notes, each with its meaning.
NOTE_KINDS: dict[str, str] = {
    "guarantee": "a figure that a theorem gives, with its neighbouring relation and its observer",
    "choice": "a decision of a run or of its accounting, which depends on public numbers and releases alone",
    "assumption": "a condition of the guarantee, which the reader must check",
    "not covered": "data, or an observer, that the guarantee does not protect against",
    "remark": "a note without a stated kind, such as each note of a ledger of 0.2.0 or before",
}


class Note(str):
    """A note of a ledger: a text of whole sentences, with its kind.

    Parameters
    ----------
    text : str
        One or more sentences.
    kind : {"guarantee", "choice", "assumption", "not covered", "remark"}
        Kind of the note, which decides its section on the page for approval; `NOTE_KINDS` has the meanings.

    Notes
    -----
    A note is an immutable string, so it is equal to each string with the same text.

    Examples
    --------
    >>> from fastfedrec.accounting import Note
    >>> note = Note("The list of items was taken from the data.", "not covered")
    >>> note.kind, note.startswith("The list")
    ('not covered', True)
    """

    __slots__ = ("_kind",)
    _kind: str

    def __new__(cls, text: str, kind: str = "remark") -> "Note":
        """Make a note after checks of its text and kind."""
        note = super().__new__(cls, check_instance("text", text, str, "pass one or more sentences"))
        note._kind = check_choice("kind", kind, tuple(NOTE_KINDS))
        return note

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self._kind

    def __repr__(self) -> str:
        return f"Note({str(self)!r}, {self._kind!r})"

    @property
    def kind(self) -> str:
        """Kind of the note.

        Returns
        -------
        str
            One of `NOTE_KINDS`.
        """
        return self._kind


def note_kind(text: str) -> str:
    """Return the kind of a note, or "remark" for other strings.

    Parameters
    ----------
    text : str
        Entry of a ledger's `notes`.

    Returns
    -------
    str
        One of `NOTE_KINDS`.
    """
    return text.kind if isinstance(text, Note) else "remark"


#: Schema of one note in a document: the kind and the text, or the text alone for a remark.
NOTE_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {
                "kind": {"enum": [kind for kind in NOTE_KINDS if kind != "remark"]},
                "text": {"type": "string"},
            },
            "required": ["kind", "text"],
            "additionalProperties": False,
        },
    ]
}


def note_to_json(note: str) -> Any:
    """Return a note as values of JSON; a remark is a string, so that digests of earlier ledgers remain valid.

    Parameters
    ----------
    note : str
        Entry of a ledger's `notes`.

    Returns
    -------
    str or dict
        A value that follows `NOTE_SCHEMA`.
    """
    kind = note_kind(note)
    return str(note) if kind == "remark" else {"kind": kind, "text": str(note)}


def note_from_json(value: Any) -> Note:
    """Return the note of a value that follows `NOTE_SCHEMA`.

    Parameters
    ----------
    value : str or dict
        Text, or kind and text.

    Returns
    -------
    Note
        The note; a string alone is a "remark".
    """
    return Note(value) if isinstance(value, str) else Note(value["text"], value["kind"])
