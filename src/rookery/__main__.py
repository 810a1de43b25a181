"""``python -m rookery`` is the ``rookery`` command."""

import sys

from rookery.cli import main

if __name__ == "__main__":
    sys.exit(main())
