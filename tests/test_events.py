from dataclasses import FrozenInstanceError

import pytest

from fastfedrec.accounting import CentralRelease, LocalReports, Unprotected


def test_events_are_frozen_and_comparable():
    event = LocalReports("m", 1.0, 2, 3)
    with pytest.raises(FrozenInstanceError):
        event.epsilon = 0.1
    assert event == LocalReports("m", 1.0, 2, 3)
    assert len({event, LocalReports("m", 1.0, 2, 3), LocalReports("m", 1.0, 2, 4)}) == 2


def test_events_say_relation_unit_and_trust():
    local, central = LocalReports("m", 1.0, 2, 3), CentralRelease("c", 1.0)
    assert (local.neighboring, local.privacy_unit, local.trust) == ("replace", "user", "local")
    assert (central.neighboring, central.privacy_unit, central.trust) == ("add_remove", "user", "central")
    assert Unprotected("raw").privacy_unit == "user"
