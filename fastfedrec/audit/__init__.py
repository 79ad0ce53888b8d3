"""Audits of privacy claims: exact on finite channels, a lower bound by draws for anything else.

Assertions for other projects' tests are in `testing`; attacks on fitted models are in `studies`.
"""

from fastfedrec.audit.bounds import AuditResult, audit

__all__ = ["AuditResult", "audit"]
