"""Ends in ways that aren't failures of the training, or that hang."""

import os
import sys
import threading
import time

how = sys.argv[1]
if how == "abort-at-exit":
    import atexit

    atexit.register(os.abort)
elif how == "hanging-thread":
    threading.Thread(target=time.sleep, args=(600,)).start()
    raise ValueError("with a thread that never ends")
elif how == "leaves-grandchild":
    import subprocess

    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    with open(sys.argv[2], "w") as file:
        file.write(str(child.pid))
elif how == "excepthook":
    sys.excepthook = lambda *_: print("the script's own excepthook", file=sys.stderr)
    raise ValueError("for the hook")
elif how == "broken-str":

    class BrokenError(Exception):
        def __str__(self):
            raise RuntimeError

    raise BrokenError
elif how == "recursion":

    def deeper(depth):
        return deeper(depth + 1)

    deeper(0)
elif how == "group":
    raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])
elif how == "text":
    sys.exit("a farewell as text")
elif how == "caught":
    try:
        raise KeyError("a column")
    except KeyError as error:
        print("failed:", error)
        sys.exit(3)
