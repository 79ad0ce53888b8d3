"""One module for each reader, with a `TARGET`."""
