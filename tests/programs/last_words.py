"""Fails as its argument says, and tells of it in its output alone."""

import logging
import os
import subprocess
import sys
import threading
import time
import traceback

CHILD = [sys.executable, "-c", "raise RuntimeError('the weather is bad today')"]
KILLED_CHILD = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]


def fail():
    raise RuntimeError("the weather is bad today")


how = sys.argv[1]
if os.environ.get("RANK", "1") != "1":
    time.sleep(600)
if how == "child":
    sys.exit(subprocess.run(CHILD, check=False).returncode)
if how == "checked-child":
    subprocess.run(CHILD, check=True)
if how == "killed-child":
    killed = subprocess.run(
        [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], check=False
    )
    sys.exit(killed.returncode)
if how == "thread":
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    sys.exit(1)
try:
    fail()
except RuntimeError as error:
    if how == "traceback":
        traceback.print_exc()
    elif how == "logger":
        logging.exception("it can't go on")
    elif how == "message":
        print("it can't go on:", error)
    elif how.startswith("survived"):
        traceback.print_exc()
        for step in range(8):  # to the same stream: what two pipes hold at once has no order
            print({"loss": 1 / (step + 1), "epoch": step}, f"step {step}", file=sys.stderr)
    elif how == "long-ago":
        print(error)
        print("the next line\n" * 20, flush=True)
if how == "killed":
    os.kill(os.getpid(), 9)
os._exit(5)
