"""The page that lists all mutants: made by ``python -m mutants --table``, and compared with it by a test."""

from mutants.patch import Mutant

BEGIN, END = "<!-- made by mutants --table -->\n", "<!-- end -->\n"


def table(groups: dict[str, list[Mutant]]) -> str:
    """A heading and a table for each group."""
    parts = []
    for title, mutants in groups.items():
        parts.append(f"### {title}\n\n| mutant | what it breaks | killed by |\n| --- | --- | --- |\n")
        for mutant in mutants:
            tests = ", ".join(f"`{name}`" for name in mutant.killed_by)
            parts.append(f"| {mutant.name} | {mutant.breaks} | {tests} |\n")
        parts.append("\n")
    return "".join(parts)


def with_table(page: str, groups: dict[str, list[Mutant]]) -> str:
    """The page with its table made anew."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{table(groups)}{END}{rest.split(END)[1]}"
