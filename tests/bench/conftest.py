"""Makes the benches importable: they are in the repository, not in the package."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
