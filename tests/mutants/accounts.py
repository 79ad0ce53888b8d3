from mutants.patch import Mutant

ACCOUNTS: list[Mutant] = []
