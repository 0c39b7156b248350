"""Locks, and the child of a fork; parts of a model that several threads switch."""

import ast
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import quantal
from quantal._process_lock import ProcessLock
from quantal._switches import Switches

FORK = """
import os, signal, threading
from quantal._process_lock import ProcessLock
lock = ProcessLock(threading.KIND)
held, done = threading.Event(), threading.Event()
def hold():
    with lock():
        held.set()
        done.wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)  # which ends a child that waits
    with lock():
        os._exit(0)
done.set()
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.parametrize("kind", ["Lock", "RLock"])
def test_a_child_finds_every_lock_open(kind):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK.replace("KIND", kind)],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.strip() == "0"


def test_who_forks_inside_still_leaves():
    lock = ProcessLock()
    with lock():
        lock.renew()  # as in the child
        with lock():
            pass
    with lock():
        pass


def test_there_are_no_other_locks():
    """Which a fork would leave closed: every one is a `ProcessLock`."""
    kinds = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Barrier"}
    found = [
        (path.name, node.lineno)
        for path in Path(quantal.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", None)) in kinds
    ]
    assert found == []


def test_parts_get_their_own_state_back_after_a_failure():
    class Lamp:
        on = False

    def write(lamp, on):
        if on == "broken":
            raise RuntimeError(on)
        lamp.on = on

    switches, lamps = Switches(lambda lamp: lamp.on, write), [Lamp(), Lamp(), Lamp()]
    with switches.set([(lamps[0], 1)]):
        with (
            pytest.raises(RuntimeError, match="broken"),
            switches.set([(lamps[0], 2), (lamps[1], 2), (lamps[1], 3), (lamps[2], "broken")]),
        ):
            pass
        assert [lamp.on for lamp in lamps] == [1, False, False]
        with pytest.raises(ZeroDivisionError), switches.set([(lamps[1], 2)]):
            raise ZeroDivisionError
    assert [lamp.on for lamp in lamps] == [False] * 3


def test_many_threads_switch_one_part():
    lamp = {"on": 0}
    switches = Switches(lambda lamp: lamp["on"], lambda lamp, on: lamp.update(on=on))
    seen = []

    def use(number):
        for _ in range(200):
            with switches.set([(lamp, number)]):
                seen.append(lamp["on"])

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=use, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(before)
    assert lamp == {"on": 0}
    assert 0 not in seen
