"""`python -m devwidget`."""

import sys

from devwidget.cli.main import main

if __name__ == "__main__":  # a process that multiprocessing spawns imports this file again
    sys.exit(main())
