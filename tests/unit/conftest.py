"""Lets the unit tests import what they share."""

import sys
from pathlib import Path

# The tests are imported by their path, so the module they share has to be made findable.
sys.path.insert(0, str(Path(__file__).parent))
