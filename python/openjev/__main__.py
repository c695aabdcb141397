"""`python -m openjev` is `openjev`."""

import sys

from openjev.cli import main

sys.exit(main())
