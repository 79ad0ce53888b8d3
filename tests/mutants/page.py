"""The page that lists all mutants: made by ``python -m mutants --page``, and compared with it by a test."""

from mutants.patch import Mutant

BEGIN, END = "<!-- made by mutants --page -->\n", "<!-- end -->\n"


def lists(groups: dict[str, list[Mutant]]) -> str:
    """A heading and a list for each group: long names of tests would widen a table beyond any screen."""
    parts = []
    for title, mutants in groups.items():
        parts.append(f"### {title}\n\n")
        for mutant in mutants:
            tests = ", ".join(f"`{name}`" for name in mutant.killed_by)
            parts.append(f"- **{mutant.name}**: {mutant.breaks} ({tests})\n")
        parts.append("\n")
    return "".join(parts)


def with_lists(page: str, groups: dict[str, list[Mutant]]) -> str:
    """The page with its lists made anew."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{lists(groups)}{END}{rest.split(END)[1]}"
