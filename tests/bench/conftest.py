"""The scripts of bench/ are files beside each other, not a package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "bench"))
