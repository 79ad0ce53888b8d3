"""Accountants for tests of their common contract."""

from fastfedrec.accounting import AdvancedAccountant, PLDAccountant, PureAccountant, RDPAccountant, ZCDPAccountant

ALL = [PureAccountant, AdvancedAccountant, ZCDPAccountant, RDPAccountant, PLDAccountant]
