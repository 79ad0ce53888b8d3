"""The systems: one file each, over the contract of `base`."""
