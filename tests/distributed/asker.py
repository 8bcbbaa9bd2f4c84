"""Asks the ranks of a folder for each line that it reads: `asker.py FOLDER PATIENCE FILE` prints the file of what it heard."""

from __future__ import annotations

import os
import sys

import devwidget


def main(folder: str, patience: float, path: str) -> None:
    for number, _ in enumerate(sys.stdin):
        try:
            print(devwidget.ranks(folder, patience=patience).save(f"{path}-{os.getpid()}-{number}.json"), flush=True)
        except devwidget.DevwidgetError:  # nobody is there yet
            print(flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3])
