"""What every fitted model offers its users: score, recommend, save; and `load`."""

import copy
import functools
import inspect
import os
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any, ClassVar, Self

import numpy as np

from fastfedrec.accounting import CommunicationLedger, Ledger
from fastfedrec.core.check import check_flag
from fastfedrec.core.html import html_card, html_table
from fastfedrec.core.model_files import not_a_model, write_model
from fastfedrec.core.names import HOMES, find
from fastfedrec.core.text import did_you_mean
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._answers import Answers
from fastfedrec.systems._saved import SavedModel, data_fields
from fastfedrec.systems._transaction import Account, Unfinished
from fastfedrec.systems.claims import tell_catalogue

__all__ = ["Recommender", "load"]


class Recommender(Answers):
    """A model of users and items, by external ids.

    Attributes
    ----------
    interactions_ : Interactions
        What the model was fitted on, after `fit`; the items of each user are that user's own data.
    ledger_ : fastfedrec.accounting.Ledger
        What the fit cost each user, and what fits of this model that did not finish had cost.
    """

    _registry: ClassVar[dict[str, type["Recommender"]]] = {}

    #: Fitted arrays that are written by `save`.
    _saved: ClassVar[tuple[str, ...]] = ()

    #: Those of them that files of 0.1.0 do not have: zeros say that they are not known.
    _not_in_0_1_0: ClassVar[tuple[str, ...]] = ()

    #: Whether fits tell `communication_` of their rounds.
    _communicates: ClassVar[bool] = False

    #: Whether the model serves users it was not fitted on.
    serves_others: ClassVar[bool] = False
    _instead: ClassVar[str] = "fit it again with the others"

    #: Attributes of constructor arguments whose own name a method has.
    _attributes: ClassVar[dict[str, str]] = {}

    interactions_: Interactions
    ledger_: Ledger
    communication_: CommunicationLedger

    _unfinished_: tuple[Unfinished, ...] = ()  # fits that failed, and what they had spent

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Recommender._registry[cls.__name__] = cls

    # ---- parameters, as scikit-learn users know them ------------------------------------------------------------

    def __post_init__(self) -> None:
        """Check the parameters; every constructor ends here."""
        given = self.get_params()
        self._check_parameters()
        # `sklearn.base.clone` demands the very objects that it gave.  Others are kept as they were checked.
        for name, value in given.items():
            attribute = self._attributes.get(name, name)
            if _is_same(value, getattr(self, attribute)):
                setattr(self, attribute, value)

    def _check_parameters(self) -> None:
        """Raise for a bad constructor argument, and keep each as the type that it is meant to have."""

    @classmethod
    @functools.cache  # of each class: a fit asks three times, and a class without a constructor of its own takes .2 ms
    def _parameter_names(cls) -> list[str]:
        return [p.name for p in inspect.signature(cls).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments.

        Parameters
        ----------
        deep : bool
            Has no effect; here for scikit-learn's tools.

        Returns
        -------
        dict
            Name to value.
        """
        return {name: getattr(self, self._attributes.get(name, name)) for name in self._parameter_names()}

    def set_params(self, **parameters: Any) -> Self:
        """Change constructor arguments; they are checked at once.

        Parameters
        ----------
        **parameters : object
            Name to value.

        Returns
        -------
        Recommender
            This model.
        """
        unknown = sorted(set(parameters) - set(self._parameter_names()))
        if unknown:
            known = self._parameter_names()
            meant = did_you_mean(unknown[0], known)
            raise ValueError(f"unknown parameters {unknown}{meant}; {type(self).__name__} has {known}")
        new = type(self)(**(self.get_params() | parameters)).get_params()
        # At once: what cannot be is refused before anything is changed, and a number is kept as the constructor has it.
        vars(self).update({self._attributes.get(name, name): new[name] for name in parameters})
        return self

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({arguments})"

    def _facts(self) -> dict[str, Any]:
        """What a notebook shows beside the parameters."""
        if "interactions_" not in vars(self):
            return {"data": "not fitted"}
        return {"data": repr(self.interactions_).strip("<>"), "privacy": repr(self.ledger_).strip("<>")}

    def _repr_html_(self) -> str:
        parameters = html_table(("parameter", "value"), [(name, repr(v)) for name, v in self.get_params().items()])
        return html_card(type(self).__name__, self._facts(), *[parameters] * bool(self.get_params()))

    # ---- state --------------------------------------------------------------------------------------------------

    def _unfitted(self) -> Self:
        """A new model with these parameters, and nothing of any fit but what was spent in vain: what `fit` works on."""
        fresh = type(self)(**self.get_params())
        parameters = {self._attributes.get(name, name) for name in self._parameter_names()}
        # What a caller has set stays: names that begin or end in _ are ours.
        others = {name for name in vars(self) if not name.startswith("_") and not name.endswith("_")} - parameters
        vars(fresh).update({name: getattr(self, name) for name in others})
        if self._unfinished_:
            fresh._unfinished_ = self._unfinished_
        return fresh

    def _open_account(self, ledger: Ledger, data: Interactions, *, simulation: bool, run: str | None = None) -> Ledger:
        """The ledger that a fit writes to, before it does anything to people's data."""
        self._account_ = Account(ledger, self._unfinished_, simulation=simulation, run=run)
        tell_catalogue(ledger, data)
        return ledger

    def _copied_parameters(self) -> dict[str, Any]:
        """Return a copy of the parameters that no one else can change, or raise for what cannot be copied."""
        copied = {}
        for name, value in self.get_params().items():
            try:
                copied[name] = copy.deepcopy(value)
            except Exception as error:
                raise TypeError(
                    f"`{name}` must be a value that can be copied, got {value!r}, which holds what cannot ({error}); "
                    "pass a list, dict or array"
                ) from error
        return copied

    def _finish(self, parameters: dict[str, Any] | None = None) -> None:
        """Everything is fitted: methods go by these parameters, None for those of now, from here on."""
        self._parameters_ = self._copied_parameters() if parameters is None else parameters

    def _fitted(self) -> Self:
        """The model with the parameters that it was fitted with, whatever `set_params` has said since."""
        if "interactions_" not in vars(self):
            raise RuntimeError(f"this {type(self).__name__} is not fitted yet; call fit(interactions) first")
        then = vars(self).get("_parameters_", {})  # there are none while it is being fitted, in a callback
        changed = {
            attribute: value
            for name, value in then.items()
            if not _is_same(getattr(self, attribute := self._attributes.get(name, name)), value)
        }
        if not changed:
            return self
        model = copy.copy(self)
        vars(model).update(changed)
        return model

    def with_users(self, interactions: InteractionsLike) -> Any:
        """Serve other users, if the model can, without another fit and at no cost to any user.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Their data, over the same items.

        Returns
        -------
        Recommender
            A model of its own for these users.

        Raises
        ------
        TypeError
            The model serves only the users it was fitted on.
        """
        raise TypeError(f"{type(self._fitted()).__name__} serves only the users it was fitted on; {self._instead}")

    def _serving(self, data: Interactions) -> Self:
        """A copy that serves these users with what the server released; a subclass sets what is theirs."""
        items = self.interactions_.item_ids
        if not np.array_equal(data.item_ids, items):
            raise ValueError(
                f"interactions must have the {len(items)} items the model was fitted on, in their order, got "
                f"{data.n_items} others; build them with the same item ids"
            )
        model = copy.copy(self)
        model.interactions_ = data
        return model

    def save(self, path: str | os.PathLike[str], *, include_users: bool = True) -> None:
        """Write the fitted model to one file, without pickle and without any key.

        Parameters
        ----------
        path : path-like
            The file; an ordinary one is replaced when the new one is whole, and anything else is refused.
        include_users : bool
            Write what belongs to the users as well: their ids, which items each has, with values and timestamps, user
            factors, and the columns of features of users and items (with a warning where a file cannot hold one).  No
            guarantee covers that part, so only the file's owner may read it.  False: the file holds what the server
            knows, to be given to others (of features what the model has learnt from), and serves users whose rows are
            brought by `with_users`.  A pickle always holds the users.

        Raises
        ------
        RuntimeError
            Not fitted.
        ValueError
            `path` is a link, a folder or a device.
        """
        model = self._fitted()
        data = model.interactions_
        if not check_flag("include_users", include_users):
            # Empty arrays, too, have a type, and that of ids or values may be due to one user alone.
            data = data.select_users(np.empty(0, dtype=np.int64))
            data = data._replace(user_ids=np.empty(0, dtype=np.int64), values=None, timestamps=None, repeats=None)
        fields, arrays = data_fields(data, with_features=include_users)
        arrays |= model._fitted_arrays(include_users)
        header = {"class": type(model).__name__, "parameters": model._saved_parameters()} | fields | model._header()
        write_model(path, self._as_saved(header), arrays, private=include_users)

    def _as_saved(self, header: dict[str, Any]) -> dict[str, Any]:
        """The header of a file; of a model that holds another, which `_fitted` is, with both."""
        return header

    def _saved_parameters(self) -> dict[str, Any]:
        """The constructor's arguments as a file has them, which the constructor takes too."""
        return self.get_params()

    def _fitted_arrays(self, include_users: bool) -> dict[str, np.ndarray]:
        whole = {name: getattr(self, name) for name in self._saved}
        return {
            f"model.{name}": array if include_users or not name.startswith("user_") else array[:0]
            for name, array in whole.items()
        }

    def _header(self) -> dict[str, Any]:
        """What is saved beside the arrays; `_read_header` reads it."""
        rounds = {"rounds": [astuple(traffic) for traffic in self.communication_.rounds]} if self._communicates else {}
        return {"ledger": self.ledger_.to_dict()} | rounds

    def _read_header(self, saved: SavedModel) -> None:
        """Take what a subclass added to `_header`, and what its arrays' rules rest on."""
        self.ledger_ = saved.ledger()
        if self._communicates:
            self.communication_ = saved.communication()

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        """Type, shape and range of the arrays of `_saved`, from the parameters and what `_read_header` has read.

        Without a rule an array is a vector of ids.
        """
        return {}

    def _disagreement(self) -> str | None:
        """Why saved arrays, each of which keeps its rule, do not belong together; None where they do."""
        return None

    @classmethod
    def _from_saved(cls, saved: SavedModel) -> Self:
        model = cls(**saved.parameters(cls._parameter_names()))
        model.interactions_ = saved.interactions()
        model._read_header(saved)
        rules = model._saved_rules()
        for name in cls._saved:
            rule = rules.get(name)
            if rule is not None and name in cls._not_in_0_1_0 and not saved.has_array(f"model.{name}"):
                array: np.ndarray = np.zeros([n or 0 for n in rule.shape], rule.dtype)
            else:
                array = saved.array(f"model.{name}", rule)
            setattr(model, name, array)
        if reason := model._disagreement():
            raise saved.error("arrays", reason)
        saved.close()
        model._finish()
        return model


def load(path: str | os.PathLike[str]) -> Recommender:
    """Read a model written by its ``save``.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    Recommender
        Of the class that was saved, ready to score and recommend.

    Raises
    ------
    ValueError
        Not a model of this package.
    """
    saved = SavedModel(path)
    name = saved.class_name
    if name in HOMES:
        find(name)  # names are imported when they are first used, and only then is a class known
    kind = Recommender._registry.get(name)
    if kind is None or inspect.isabstract(kind):
        raise ValueError(f"path {os.fsdecode(path)!r} holds a {name!r}, which this version does not know")
    try:
        return kind._from_saved(saved)
    except Exception as error:  # what a constructor says of its parameters does not say where they come from
        raise (error if str(error).startswith("path ") else not_a_model(path, error)) from error


def _is_same(one: Any, other: Any) -> bool:
    """Whether two parameters, and all that tuples and dictionaries hold, are equal and of one type."""
    if one is other or type(one) is not type(other):
        return one is other
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_same(value, other[name]) for name, value in one.items())
    return isinstance(one, int | float | str) and one == other
