"""A feed that runs in another process, which is killed with SIGKILL again and again."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from random import Random

from headrace.testing.connectors import COLUMNS


class KilledFeed:
    """A feed in a process of its own. `killing` kills and starts it while its block runs."""

    def __init__(self, feed, folder, *, schema=COLUMNS, key=("id",)):
        self.file = folder / "feed.pickle"
        self.file.write_bytes(pickle.dumps((feed, str(folder / "log"), schema, key)))
        self.kills = 0
        self.process = self._started()

    def _started(self):
        return subprocess.Popen([sys.executable, str(Path(__file__).with_name("feed_process.py")), str(self.file)])

    def kill(self):
        self.process.kill()
        self.process.wait()

    @contextmanager
    def killing(self, kills, progress, *, seed):
        """Kill it so many times while the block runs, by chance, as `progress` goes from 0.0 to 1.0."""
        chance, ended = Random(seed), threading.Event()  # noqa: S311 -- a test
        moments = sorted(chance.uniform(0.05, 0.9) for _ in range(kills))

        def run():
            for moment in moments:
                while progress() < moment:
                    if ended.wait(0.005):
                        return
                self.kill()
                self.kills += 1
                self.process = self._started()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
