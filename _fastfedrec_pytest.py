"""Plugin of pytest for tests that `fastfedrec.testing.verify` made: a marker, the session's alpha, and a summary.

This module is outside of the package and imports nothing of it, so that other sessions stay as fast as they are.
"""

import sys

import pytest

_VERIFICATION = "fastfedrec.testing.verification"
_MARKER = "privacy_claim"
_PROPERTY = "fastfedrec_privacy_claim"
_HELP = "probability that any verified privacy claim of the session fails although it is true, such as 0.001"


def pytest_addoption(parser):
    """Add the session's alpha to the command line and to the configuration file."""
    group = parser.getgroup("fastfedrec", "privacy claims (fastfedrec)")
    group.addoption("--privacy-alpha", type=float, default=None, metavar="ALPHA", help=_HELP)
    parser.addini("privacy_alpha", _HELP, default=None)


def pytest_configure(config):
    """Register the marker."""
    config.addinivalue_line("markers", f"{_MARKER}: verifies a privacy claim (fastfedrec.testing.verify)")


def pytest_itemcollected(item):
    """Mark a test that verifies a claim."""
    if _find_claim(item) is not None:
        item.add_marker(_MARKER)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Split the session's alpha over the tests that were selected."""
    claims = [claim for claim in map(_find_claim, items) if claim is not None]
    if not claims:
        return
    config.pluginmanager.register(_Recorder(), "fastfedrec-recorder")
    alpha = config.getoption("privacy_alpha")
    if alpha is None and (text := config.getini("privacy_alpha")) is not None:
        try:
            alpha = float(text)
        except ValueError:
            raise pytest.UsageError(f"privacy_alpha must be a number, got {text!r}") from None
    if alpha is None:
        return
    if not 0 < alpha <= 0.25:
        raise pytest.UsageError(f"privacy_alpha must be in (0, 0.25], got {alpha}")
    shared = [claim for claim in claims if not claim.is_alpha_given]
    share = alpha - sum(claim.alpha for claim in claims if claim.is_alpha_given)
    if share <= 0:
        raise pytest.UsageError(
            f"privacy_alpha must exceed the sum of the alphas that tests state, got {alpha} and {alpha - share:g}; "
            "raise it, or leave alpha out of the tests"
        )
    for claim in shared:
        claim.alpha = share / len(shared)


def pytest_terminal_summary(terminalreporter):
    """List the verified claims."""
    if terminalreporter.config.option.verbose < 0:
        return
    lines, total = [], 0.0
    for reports in terminalreporter.stats.values():
        for report in reports:
            properties = dict(getattr(report, "user_properties", ()))
            if _PROPERTY in properties and report.when == "call":
                line, alpha = properties[_PROPERTY]
                lines.append(f"{report.outcome}: {report.nodeid}: {line}")
                total += alpha
    if lines:
        terminalreporter.section("verified privacy claims")
        for line in sorted(lines):
            terminalreporter.line(line)
        terminalreporter.line(f"probability of any false alarm: at most {total:.3g}")


class _Recorder:
    """Hooks of sessions with verified claims."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        """Add the result of a claim to the report of its test, which another hook makes."""
        claim = _find_claim(item)
        if call.when == "call" and claim is not None and claim.pair is not None:
            item.user_properties.append((_PROPERTY, (_describe(claim), claim.alpha)))


def _find_claim(item):
    """Return the claim of a test, or None."""
    if _VERIFICATION not in sys.modules:
        return None
    return getattr(getattr(item, "function", None), sys.modules[_VERIFICATION].CLAIM_ATTRIBUTE, None)


def _describe(claim):
    """Return the result of a claim as one line."""
    result = claim.pair.result
    delta = f" at delta {result.delta:g}" if result.delta else ""
    return (
        f"{result.measure} {result.claim:.4g}{delta}, lower bound {result.lower_bound:.4g} on the worst of "
        f"{claim.pair.n_pairs:,} pairs, {result.draws:,} draws, alpha {claim.alpha:.2g}"
    )
