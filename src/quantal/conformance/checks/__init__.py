"""The checks, by subject; importing this package adds them to ``check.CHECKS`` in their order."""

from quantal.conformance.checks import law  # isort: skip
from quantal.conformance.checks import independence  # isort: skip
from quantal.conformance.checks import granularity  # isort: skip
from quantal.conformance.checks import gradient  # isort: skip
from quantal.conformance.checks import limits  # isort: skip
from quantal.conformance.checks import streams  # isort: skip
from quantal.conformance.checks import inputs  # isort: skip

__all__ = ["gradient", "granularity", "independence", "inputs", "law", "limits", "streams"]
