"""``python -m quantal`` is the command ``quantal``."""

import sys

from quantal._cli import main

if __name__ == "__main__":
    sys.exit(main())
