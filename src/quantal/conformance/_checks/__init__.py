"""The checks, by subject; importing this package adds them to the registry in their order."""

from quantal.conformance._checks import one_unit  # isort: skip
from quantal.conformance._checks import places  # isort: skip
from quantal.conformance._checks import sizes  # isort: skip
from quantal.conformance._checks import dtypes  # isort: skip
from quantal.conformance._checks import independence  # isort: skip
from quantal.conformance._checks import together  # isort: skip
from quantal.conformance._checks import repeats  # isort: skip
from quantal.conformance._checks import copies  # isort: skip
from quantal.conformance._checks import symmetry  # isort: skip
from quantal.conformance._checks import seeds  # isort: skip
from quantal.conformance._checks import calls  # isort: skip
from quantal.conformance._checks import kinds  # isort: skip
from quantal.conformance._checks import granularity  # isort: skip
from quantal.conformance._checks import shared_p  # isort: skip
from quantal.conformance._checks import gradient  # isort: skip
from quantal.conformance._checks import layouts  # isort: skip
from quantal.conformance._checks import limits  # isort: skip
from quantal.conformance._checks import streams  # isort: skip
from quantal.conformance._checks import drawn  # isort: skip
from quantal.conformance._checks import inputs  # isort: skip

__all__ = [
    "calls", "copies", "drawn", "dtypes", "gradient", "granularity", "independence", "inputs",
    "kinds", "layouts", "limits", "one_unit", "places", "repeats", "seeds", "shared_p", "sizes",
    "streams", "symmetry", "together",
]  # fmt: skip
