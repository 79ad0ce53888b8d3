"""The fields of a model file: each is checked before use, and a field that no reader takes is an error."""

import copy
import math
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fastfedrec.accounting import CommunicationLedger, Ledger, RoundTraffic
from fastfedrec.core.check import check_integer, check_real
from fastfedrec.core.model_files import ObjectColumn, as_written, not_a_model, read_model
from fastfedrec.core.warn import warn
from fastfedrec.data.csr import check_csr, check_fields
from fastfedrec.data.features import FeatureTable
from fastfedrec.data.ids import axis_ids
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.repeats import ARRAYS, Repeats, file_of
from fastfedrec.rounds.system import ArrayRule

_MAX_BYTES = 2**62  # of a round's traffic
#: Fields of the interactions that every file has, and optional ones.
DATA = ("indptr", "indices", "user_ids", "item_ids", "global_user_ids")
DATA_IF_ANY = ("values", "timestamps")
AXES = ("user", "item")
_REPEATS = ("rule", "above", "is_binary")  # attributes of `Repeats` that are not arrays


def data_fields(
    data: Interactions, *, with_features: bool
) -> tuple[dict[str, Any], dict[str, np.ndarray | ObjectColumn]]:
    """Return the header and the arrays of a file for interactions; warn of feature columns that a file cannot hold."""
    rows = {f"data.{name}": getattr(data, name) for name in (*DATA, *DATA_IF_ANY)}
    arrays: dict[str, np.ndarray | ObjectColumn] = {name: array for name, array in rows.items() if array is not None}
    names: dict[str, list[str]] = {axis: [] for axis in AXES}
    for axis in AXES if with_features else ():
        for name, column in getattr(data, f"{axis}_features").items():
            if (written := as_written(column)) is not None:
                arrays[f"data.{axis}_feature.{len(names[axis])}"] = written
                names[axis].append(name)
            else:
                warn(
                    f"{axis}_features[{name!r}] is not saved: it holds values other than numbers, strings, dates or "
                    "tuples of numbers and strings; convert lists and sets to tuples, and others to text",
                )
    header: dict[str, Any] = {"catalogue": data.catalogue, "columns": names}
    if (repeats := data._repeats) is not None:  # splits by time of the loaded data need the same rows
        header["repeats"] = {name: getattr(repeats, name) for name in _REPEATS}
        row_arrays = {f"data.{file_of(name)}": getattr(repeats, name) for name in ARRAYS}
        arrays |= {name: array for name, array in row_arrays.items() if array is not None}
    return header, arrays


class SavedModel:
    """The fields of a model file; reading a field removes it.

    Parameters
    ----------
    path : path-like
        The model file.

    Raises
    ------
    ValueError
        The file is not a model of this package.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self._path = path
        self._header, self._arrays = read_model(path)
        self.class_name = self.text("class")

    def error(self, field: str, reason: object) -> ValueError:
        """Return the exception for a bad field."""
        return not_a_model(self._path, f"{field}: {reason}")

    # ---- the header ---------------------------------------------------------------------------------------------

    def value(self, name: str, *default: Any) -> Any:
        """Take a field from the header."""
        if name not in self._header and not default:
            raise self.error(name, "it is missing")
        return self._header.pop(name, *default)

    def text(self, name: str, *default: str) -> str:
        """Take a field that is a string."""
        value = self.value(name, *default)
        if type(value) is not str:
            raise self.error(name, f"must be a string, got {type(value).__name__}")
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        """Take a field that is a mapping."""
        value = self.value(name)
        if type(value) is not dict:
            raise self.error(name, f"must be a mapping, got {type(value).__name__}")
        return value

    def integer(self, name: str, *, low: int, high: int = _MAX_BYTES) -> int:
        """Take a field that is a whole number."""
        return check_integer(name, self._number(name, self.value(name)), low=low, high=high)

    def real(self, name: str, *, low: float | None = None) -> float:
        """Take a field that is a finite number."""
        return check_real(name, self._number(name, self.value(name)), low=low)

    def list_of(self, name: str, length: int) -> list[Any]:
        """Take a field that is a list of this length."""
        value = self.value(name)
        if type(value) is not list or len(value) != length:
            raise self.error(name, f"must be a list of {length}, got {str(value)[:60]}")
        return value

    def _number(self, name: str, value: Any) -> Any:
        """Return a value of the header, or raise if it is no number."""
        if type(value) not in (int, float):
            raise self.error(name, f"must be a number, got {str(value)[:60]}")
        return value

    def parameters(self, known: list[str]) -> dict[str, Any]:
        """Take the constructor's arguments; the constructor checks their values."""
        given = self.mapping("parameters")
        if unknown := sorted(given.keys() - set(known)):
            raise self.error("parameters", f"a {self.class_name} has no {unknown}")
        if not isinstance(given.get("item_features"), str | None):  # a file has none of their values
            raise self.error("parameters", "item_features must be null or a digest")
        # JSON has no tuples; all sequences among the parameters are tuples.
        return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}

    def part(self, name: str) -> "SavedModel":
        """Take the remaining fields for an inner model; this field has its class and parameters."""
        given = self.mapping(name)
        if given.keys() != {"class", "parameters"} or type(given["class"]) is not str:
            raise self.error(name, f"must have a class and parameters, got {str(given)[:60]}")
        # The inner model takes all remaining fields; this object keeps none, so that `close` accepts it.
        inner = copy.copy(self)
        inner.class_name, inner._header = given["class"], self._header | {"parameters": given["parameters"]}
        self._header, self._arrays = {}, {}
        return inner

    def ledger(self) -> Ledger:
        """Take the ledger of the fit."""
        document = self.mapping("ledger")
        try:
            return Ledger.from_dict(document, check_costs=False)
        except Exception as error:
            raise self.error("ledger", error) from error

    def communication(self) -> CommunicationLedger:
        """Take the traffic of each round."""
        rounds = self.value("rounds")
        if type(rounds) is not list:
            raise self.error("rounds", f"must be a list, got {type(rounds).__name__}")
        for traffic in rounds:
            if type(traffic) is not list or len(traffic) != 3:
                raise self.error("rounds", f"must have three numbers each, got {str(traffic)[:60]}")
            for number in traffic:
                if type(number) not in (int, float) or not 0 <= number <= _MAX_BYTES:
                    raise self.error("rounds", f"must be numbers of at least 0, got {str(number)[:60]}")
        return CommunicationLedger([RoundTraffic(*traffic) for traffic in rounds])

    # ---- the arrays ---------------------------------------------------------------------------------------------

    def has_array(self, name: str) -> bool:
        """Return whether the file has an array that was not taken yet."""
        return name in self._arrays

    def array(self, name: str, rule: ArrayRule | None = None) -> np.ndarray:
        """Take an array that satisfies a rule; without a rule, any vector."""
        if name not in self._arrays:
            raise self.error(name, "it is missing")
        array = self._arrays.pop(name)
        violation = rule.violation(array) if rule is not None else None
        if rule is None and array.ndim != 1:
            violation = f"must have 1 dimension, got shape {array.shape}"
        if violation is not None:
            raise self.error(name, violation)
        return array

    def interactions(self) -> Interactions:
        """Take the data of the fit."""
        fields: dict[str, Any] = {name: self.array(f"data.{name}") for name in DATA}
        for name in DATA_IF_ANY:
            fields[name] = self.array(f"data.{name}") if f"data.{name}" in self._arrays else None
        names = self.value("columns", dict.fromkeys(AXES, ()))
        if type(names) is not dict or names.keys() != set(AXES):
            raise self.error("columns", f"must have the keys {AXES}, got {str(names)[:60]}")
        for axis, axis_names in names.items():
            if type(axis_names) not in (list, tuple) or not all(type(name) is str for name in axis_names):
                raise self.error("columns", f"must be lists of names, got {str(axis_names)[:60]}")
            if len(set(axis_names)) < len(axis_names):
                raise self.error("columns", f"must be named once each, got {str(axis_names)[:60]}")
            columns = {name: self.array(f"data.{axis}_feature.{number}") for number, name in enumerate(axis_names)}
            fields[f"{axis}_features"] = columns
        try:
            # A file without this field gets the worst case.
            fields["catalogue"] = self.text("catalogue", "data")
            repeats = self._repeats(len(fields["indices"]))
            return Interactions._trusted(check_fields(fields, aligned=True) | repeats)
        except Exception as error:
            raise self.error("data", error) from error

    def _repeats(self, n_interactions: int) -> dict[str, Repeats]:
        """Take the rows of pairs that were merged from several, or none."""
        if (header := self.value("repeats", None)) is None:
            return {}
        if type(header) is not dict or header.keys() != set(_REPEATS) or type(header["is_binary"]) is not bool:
            raise ValueError(f"repeats must have {', '.join(_REPEATS)}, got {str(header)[:60]}")
        names = {name: f"data.{file_of(name)}" for name in ARRAYS}
        fields: dict[str, Any] = {"values": None} | header
        fields |= {name: self.array(of) for name, of in names.items() if name != "values" or of in self._arrays}
        return {"repeats": Repeats(**fields).check_within(n_interactions)}

    def features(self, side: str, names: Any, n_entries: int) -> FeatureTable:
        """Take the values of some features for each of `n_entries` users or items."""
        if type(names) is not list or not all(type(name) is str for name in names):
            raise self.error("features", f"must be lists of names, got {str(names)[:60]}")
        values = tuple(self.array(f"features.{side}.{number}") for number in range(len(names)))
        table = FeatureTable(
            tuple(names),
            values,
            n_entries,
            self.array(f"features.{side}.indptr", ArrayRule(np.int64, (n_entries * len(names) + 1,))),
            self.array(f"features.{side}.indices", ArrayRule(np.int32, (None,))),
        )
        try:
            check_csr(table.indptr, table.indices, None, table.n_values)
            for vocabulary in values:
                axis_ids("values", vocabulary, None)
        except Exception as error:
            raise self.error(f"features.{side}", error) from error
        return table

    def close(self) -> None:
        """Raise if a field was not taken."""
        if unread_fields := sorted([*self._header, *self._arrays]):
            raise self.error(", ".join(unread_fields), f"a {self.class_name} has no such field")


class SavedField(NamedTuple):
    """A field of a file's header besides data, parameters and ledger; its attribute has the name with an underscore."""

    name: str
    read: Callable[[SavedModel], Any]
    # None for an attribute that a file does not hold.
    write: Callable[[Any], Any] | None = lambda value: value


def saved_integer(name: str, *, low: int) -> SavedField:
    """Declare a field that is a whole number of at least `low`."""
    return SavedField(name, lambda saved: saved.integer(name, low=low))


def saved_real(name: str, *, low: float) -> SavedField:
    """Declare a field that is a finite number of at least `low`."""
    return SavedField(name, lambda saved: saved.real(name, low=low))


def unsaved(name: str, make: Callable[[], Any] = lambda: None) -> SavedField:
    """Declare an attribute that a file does not hold, with a function that makes its value in a model from a file."""
    return SavedField(name, lambda saved: make(), None)


def finite_or_none(number: float) -> float | None:
    """Return a number, or None if JSON cannot hold it."""
    return float(number) if math.isfinite(number) else None


def rules_of(dtype: type, **shapes: tuple[int | None, ...]) -> Mapping[str, ArrayRule]:
    """Return rules for arrays of one type, by name."""
    return {name: ArrayRule(dtype, shape) for name, shape in shapes.items()}
