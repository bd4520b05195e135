"""The scripts of bench/ are files beside each other, not a package. None may have the name of a folder of tests/."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "bench"))
