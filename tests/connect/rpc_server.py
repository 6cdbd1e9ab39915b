"""A server as a program, to be killed: `rpc_server.py TOPICS FOLDER`. It notes in FOLDER that it has answered."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import headrace as hr

if __name__ == "__main__":

    def price(request: dict) -> dict:
        """Note it, and answer."""
        (Path(sys.argv[2]) / str(os.getpid())).touch()
        return {"price": request["amount"] * 1.5}

    with hr.Server(sys.argv[1], "quotes", price) as server:
        server.run()
