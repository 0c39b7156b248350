"""The conformance kit: judge any implementation of QSD, yours or ours.

An `Adapter` is a name and two functions from NumPy to NumPy; ``run(adapter)`` returns a `Report`
that says what holds, what does not, and how small a fault it would have found. A port of your own
needs the law, from `quantal.table`, and the shapes that it is drawn in, from `coefficient_shapes`.
"""

from quantal.conformance._adapter import Adapter
from quantal.conformance._coefficient_shapes import coefficient_shapes
from quantal.conformance._finding import Finding
from quantal.conformance._report import Report, Result
from quantal.conformance._runner import names, run

__all__ = ["Adapter", "Finding", "Report", "Result", "coefficient_shapes", "names", "run"]
