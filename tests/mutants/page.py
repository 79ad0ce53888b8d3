"""The list of all mutants in Markdown; ``docs/conf.py`` makes it when the pages are built."""

from mutants.patch import Mutant


def lists(groups: dict[str, list[Mutant]]) -> str:
    """Return a heading and a list for each group; a table would be too wide for the names of tests."""
    parts = []
    for title, mutants in groups.items():
        parts.append(f"### {title}\n\n")
        for mutant in mutants:
            tests = ", ".join(f"`{name}`" for name in mutant.killed_by)
            parts.append(f"- **{mutant.name}**: {mutant.breaks} ({tests})\n")
        parts.append("\n")
    return "".join(parts)
