"""Audits of privacy claims: exact for finite channels, and a statistical lower bound from draws for other mechanisms.

Assertions for other projects' tests are in `testing`; attacks on fitted models are in `studies`.
"""

from fastfedrec.audit.bounds import AuditResult, audit
from fastfedrec.audit.search import WorstPair, list_neighbours, search_pairs

__all__ = ["AuditResult", "WorstPair", "audit", "list_neighbours", "search_pairs"]

__dir__ = __all__.copy  # dir() lists only the public names
