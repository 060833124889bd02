"""Ends as its argument says, or as the argument that its rank picks; once started, for real."""

import atexit
import os
import signal
import sys
import threading
import time
import warnings

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


class OwnError(Exception):
    pass


@case
def nothing():
    print("nothing")


@case
def leaves_with_none():
    sys.exit(None)


@case
def leaves_with_a_whole_byte():
    sys.exit(256)


@case
def handlers():
    for one in ("first", "second"):
        atexit.register(print, one, "registered")

    @atexit.register
    def late():
        atexit.register(print, "registered at the end")
        print(sys.modules["__main__"].__name__, __name__)

    @atexit.register
    def fails():
        raise OwnError("in a handler")


@case
def buffers():
    global kept
    kept = open(f"kept-{os.environ['RANK']}", "w")  # noqa: SIM115
    kept.write("never flushed by hand")
    print("without an end of line", end="")


@case
def finalizers():
    global thing, cycle

    class Thing:
        def __init__(self, name):
            self.name = name

        def __del__(self):
            print("gone:", self.name, sys.is_finalizing())

    thing, cycle = Thing("global"), Thing("cycle")
    cycle.itself = cycle
    Thing("at once")


@case
def threads():
    def slow():
        time.sleep(0.5)
        print("a thread goes on after the script's last line")

    threading.Thread(target=slow).start()
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    print("last line")


@case
def a_thread_fails():
    def fail():
        raise OwnError("in a thread")

    thread = threading.Thread(target=fail, name="mine")
    thread.start()
    thread.join()
    other = threading.Thread(target=sys.exit, args=(3,))
    other.start()
    other.join()


@case
def warned():
    warnings.warn("old ways", DeprecationWarning, stacklevel=1)
    warnings.warn("mind the gap", stacklevel=2)
    eval(compile("1 is 1", "<text>", "eval"))


@case
def raises_below():
    class Bad:
        def __del__(self):
            raise OwnError("unraisable")

    Bad()


@case
def raises():
    def inner(depth):
        if depth:
            inner(depth - 1)
        raise OwnError("deep", depth)

    try:
        inner(5)
    except OwnError as error:
        error.add_note("a note")
        raise KeyError("outer") from error


@case
def raises_a_group():
    raise ExceptionGroup("both", [OwnError("one"), ValueError("two")])


@case
def own_hook():
    def hook(kind, error, trace):
        print("hook:", kind.__name__, error, trace.tb_frame.f_code.co_name, trace.tb_lineno)

    sys.excepthook = hook
    raise OwnError("for the hook")


@case
def leaves_with_text():
    atexit.register(print, "a handler")
    sys.exit("a reason")


@case
def leaves_with_3():
    sys.exit(3)


@case
def leaves_with_minus_1():
    raise SystemExit(-1)


@case
def drops_out():
    print("not flushed, were it not for -u")
    os._exit(5)


@case
def aborts():
    os.abort()


@case
def is_terminated():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)


@case
def is_killed():
    os.kill(os.getpid(), signal.SIGKILL)


@case
def interrupts():
    raise KeyboardInterrupt


@case
def falls_too_deep():
    def again():
        return again()

    again()


names = sys.argv[1].split(",")
CASES[names[int(os.environ.get("RANK", 0)) % len(names)]]()
