"""``python -m quantal.conformance``, the same as ``quantal conform``."""

import sys

from quantal.conformance._cli import main

if __name__ == "__main__":
    sys.exit(main())
