"""`python -m tf_gc.launch` is tf_gc-launch."""

import sys

from tf_gc.launch.command_line import main

sys.exit(main())
