"""The benchmarks: one script each, with a seed, a rival, a check of the answers and a target.

    python -m bench list
    python -m bench windowed_light tiny_epoch --quick --json

`README.md` has the targets and the last figures.
"""
