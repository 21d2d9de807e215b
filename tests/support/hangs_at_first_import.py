"""A module of handlers whose first import never ends."""

import os
import time

try:
    os.close(os.open("imported", os.O_CREAT | os.O_EXCL))
except FileExistsError:
    pass
else:
    time.sleep(600)
