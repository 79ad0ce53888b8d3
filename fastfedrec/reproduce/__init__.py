"""Each paper's tables and figures, side by side with what comes out here; one module a paper."""
