#!/usr/bin/env python3
"""Checks what a compiler does not: python3 tools/tidy [--self-test] [RULE...]. Prints TAP.

Each rule is one test point; what it found stands below it as comments. Exceptions live in tools/tidy/allowed, each with its
reason; one that no longer excuses anything is a fault too. --self-test runs each rule on its own examples instead: every bad
one must be caught, every good one must pass.
"""
import os
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import c_rules  # noqa: E402
import external_rules  # noqa: E402
import layer_rules  # noqa: E402,F401 (registers its rules)
import text_rules  # noqa: E402,F401
from registry import RULES  # noqa: E402
from tree import Tree  # noqa: E402


class Tap:
    """Numbered test points on standard output."""

    def __init__(self):
        self.count = 0
        self.failures = 0

    def point(self, ok, name, skip=None):
        self.count += 1
        self.failures += not ok
        print(f"{'ok' if ok else 'not ok'} {self.count} - {name}" + (f" # SKIP {skip}" if skip else ""))

    def done(self):
        print(f"1..{self.count}")
        return 1 if self.failures else 0


def read_exceptions(text):
    """{(rule, path)}; a line without a reason, or with an unknown rule, is a ValueError."""
    exceptions = set()
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split(None, 2)
        if len(words) < 3 or words[0] not in RULES:
            raise ValueError(f"tools/tidy/allowed:{number}: not 'rule path reason': {line}")
        exceptions.add((words[0], words[1]))
    return exceptions


def run_rule(rule, tree, exceptions):
    """(findings left, exceptions of this rule that excused nothing)"""
    mine = {path for name, path in exceptions if name == rule.name}
    findings = list(rule.check(tree))
    left = [finding for finding in findings if finding.path not in mine]
    return left, sorted(mine - {finding.path for finding in findings})


def check_project(names):
    tree = Tree.from_disk(os.path.dirname(os.path.dirname(HERE)))
    with open(os.path.join(HERE, "allowed"), encoding="utf-8") as f:
        exceptions = read_exceptions(f.read())
    tap = Tap()
    for name in names:
        try:
            left, idle = run_rule(RULES[name], tree, exceptions)
        except external_rules.ToolMissing as missing:
            tap.point(True, name, skip=str(missing))
            continue
        tap.point(not left and not idle, f"{name}: {RULES[name].says()}")
        for finding in left:
            print(f"# {finding}")
        for path in idle:
            print(f"# tools/tidy/allowed: {name} {path}: nothing needs this exception any more")
    for floor, (count, lines) in sorted(c_rules.densities(tree).items()):
        print(f"# {floor}: {count} assertions in {lines} lines of code, {count * 1000 / max(lines, 1):.1f} per thousand")
    return tap.done()


def self_test(names):
    tap = Tap()
    for name in names:
        rule = RULES[name]
        try:
            for number, texts in enumerate(rule.bad, 1):
                tap.point(bool(list(rule.check(Tree(texts)))), f"{name} catches its bad example {number}")
            for number, texts in enumerate(rule.good, 1):
                findings = list(rule.check(Tree(texts)))
                tap.point(not findings, f"{name} lets its good example {number} pass")
                for finding in findings:
                    print(f"# {finding}")
        except external_rules.ToolMissing as missing:
            tap.point(True, name, skip=str(missing))
    any_rule = RULES["file-length"]
    long_file = Tree({"src/base/a.c": "\n" * 601})
    tap.point(run_rule(any_rule, long_file, {("file-length", "src/base/a.c")}) == ([], []), "an exception excuses")
    tap.point(run_rule(any_rule, Tree({}), {("file-length", "src/base/a.c")})[1] == ["src/base/a.c"],
              "an exception that excuses nothing is reported")
    for text in ("file-length src/a.c\n", "no-such-rule src/a.c because\n"):
        try:
            read_exceptions(text)
            tap.point(False, f"a bad line in the list of exceptions is refused: {text.strip()}")
        except ValueError:
            tap.point(True, f"a bad line in the list of exceptions is refused: {text.strip()}")
    return tap.done()


def main(arguments):
    selfish = "--self-test" in arguments
    names = [name for name in arguments if name != "--self-test"] or list(RULES)
    unknown = [name for name in names if name not in RULES]
    if unknown:
        print(f"tools/tidy: no rule is called '{unknown[0]}'; there are: {' '.join(RULES)}", file=sys.stderr)
        return 2
    return self_test(names) if selfish else check_project(names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
