"""What Headrace is measured by: one script a bench, each with a seed, a rival, a check of the answer and a must.

    python -m bench list
    python -m bench windowed_light tiny_epoch --quick --json

`README.md` says what each expects, how its rival was set, and what was found.
"""
