"""Accountants for tests of their common contract."""

from fastfedrec.accounting import AdvancedAccountant, PLDAccountant, PureAccountant, RDPAccountant, ZCDPAccountant

#: All accountants: each covers at least the events of those before it.
ALL = [PureAccountant, AdvancedAccountant, ZCDPAccountant, RDPAccountant, PLDAccountant]
