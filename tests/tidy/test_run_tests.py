#!/usr/bin/env python3
"""The counter of test results must not be foolable: what tools/run-tests makes of programs that pass, fail, die, hang, lie
or say nothing. Prints TAP; each line of the table is one point."""
import importlib.machinery
import importlib.util
import os
import sys

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def load(path):
    """A program without a .py name, as a module."""
    loader = importlib.machinery.SourceFileLoader("run_tests", path)
    spec = importlib.util.spec_from_loader("run_tests", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


# what, is it TAP, meson's verdict, output, (passed, failed, skipped)
TABLE = [
    ("all points pass", True, "OK", "ok 1 - a\nok 2 - b\n1..2\n", (2, 0, 0)),
    ("one point fails", True, "FAIL", "ok 1 - a\nnot ok 2 - b\n# why\n1..2\n", (1, 1, 0)),
    ("two points fail", True, "FAIL", "not ok 1 - a\nnot ok 2 - b\n1..2\n", (0, 2, 0)),
    ("a skipped point", True, "OK", "ok 1 - a # SKIP no fio\nok 2 - b\n1..2\n", (1, 0, 1)),
    ("a skipped program", True, "SKIP", "1..0 # SKIP no qemu-img\n", (0, 0, 1)),
    ("everything skipped point by point", True, "SKIP", "ok 1 - a # SKIP x\nok 2 - b # skip y\n1..2\n", (0, 0, 2)),
    ("a point named like a failure", True, "OK", "ok 1 - not ok is counted\n1..1\n", (1, 0, 0)),
    ("a point without number or name", True, "OK", "ok\n1..1\n", (1, 0, 0)),
    ("a failure excused as unfinished", True, "OK", "not ok 1 - a # TO" + "DO later\n1..1\n", (0, 1, 0)),
    ("comments that look like points", True, "OK", "# not ok 1 - a\n  not ok 2\nok 1 - b\n1..1\n", (1, 0, 0)),
    ("dies after passing points", True, "ERROR", "ok 1 - a\n", (1, 1, 0)),
    ("plans more points than it ran", True, "ERROR", "ok 1 - a\n1..2\n", (1, 1, 0)),
    ("hangs", True, "TIMEOUT", "ok 1 - a\n", (1, 1, 0)),
    ("exits nonzero though every point passed", True, "ERROR", "ok 1 - a\n1..1\n", (1, 1, 0)),
    ("reports nothing", True, "OK", "1..0\n", (0, 1, 0)),
    ("says nothing at all", True, "OK", "", (0, 1, 0)),
    ("a plain program passes", False, "OK", "not ok is just text here\n", (1, 0, 0)),
    ("a plain program fails", False, "FAIL", "", (0, 1, 0)),
    ("a plain program skips", False, "SKIP", "", (0, 0, 1)),
    ("a plain program hangs", False, "TIMEOUT", "", (0, 1, 0)),
    ("a plain program expected to fail does", False, "EXPECTEDFAIL", "", (1, 0, 0)),
    ("a plain program expected to fail passes", False, "UNEXPECTEDPASS", "", (0, 1, 0)),
]


def main():
    run_tests = load(os.path.join(ROOT, "tools", "run-tests"))
    points = []
    for what, is_tap, result, output, expected in TABLE:
        record = {"name": "unit - x", "stdout": output, "result": result, "returncode": 0}
        tally = run_tests.count_program(record, is_tap)
        got = (tally.passed, len(tally.failed), len(tally.skipped))
        points.append((what, got == expected, f"passed, failed, skipped: expected {expected}, got {got}"))
    none, good, bad = run_tests.Tally(), run_tests.Tally(), run_tests.Tally()
    good.passed = 3
    bad.passed, bad.failed = 3, ["x"]
    points.append(("nothing passed is no success", not none.succeeded(), "it was one"))
    points.append(("a failure is no success", not bad.succeeded(), "it was one"))
    points.append(("only passes are a success", good.succeeded(), "it was none"))
    points.append(("the closing line", good.line() == "3 passed, 0 failed", good.line()))
    good.skipped = [("a", "b")]
    points.append(("the closing line with skips", good.line() == "3 passed, 0 failed, 1 skipped", good.line()))

    fibers = "==7==WARNING: ASan doesn't fully support makecontext/swapcontext functions and may produce false positives\n\n"
    for what, text, expected in (("a sanitizer's error", "==7==ERROR: LeakSanitizer: detected memory leaks\n", True),
                                 ("an error after the word about fibers", fibers + "==7==ERROR: x\n", True),
                                 ("the word about fibers alone", fibers, False)):
        points.append((f"{what} is {'a' if expected else 'no'} report", run_tests.is_report(text) == expected, text))

    for number, (what, ok, why) in enumerate(points, 1):
        print(f"{'ok' if ok else 'not ok'} {number} - {what}")
        if not ok:
            print(f"# {why}")
    print(f"1..{len(points)}")
    return 0 if all(ok for _, ok, _ in points) else 1


if __name__ == "__main__":
    sys.exit(main())
