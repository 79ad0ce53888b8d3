"""Accountants that tests try what all of them promise."""

from fastfedrec.accounting import AdvancedAccountant, PLDAccountant, PureAccountant, RDPAccountant, ZCDPAccountant

ALL = [PureAccountant, AdvancedAccountant, ZCDPAccountant, RDPAccountant, PLDAccountant]
