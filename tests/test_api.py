"""The page of what is public and supported states what the metadata state."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/reference/api.md").read_text()


def test_the_page_of_what_is_public_states_what_the_metadata_state():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    low, high = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", project["requires-python"]).groups()
    assert f"Python 3.{low} to 3.{int(high) - 1}" in PAGE
    for requirement in project["dependencies"]:
        name, _, version = requirement.partition(">=")
        assert re.search(rf"\b{name}\b[^|]*\| {re.escape(version)} ", PAGE, re.IGNORECASE), requirement
    for extra in project["optional-dependencies"]:
        assert f"`{extra}`" in PAGE, extra
