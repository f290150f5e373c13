"""`python -m fedseq` is the command `fedseq`, also where that is not on the PATH."""

import sys

from fedseq.cli import main

sys.exit(main())
