"""Rules that other programs check: layout, spelling, shell scripts, manual pages. Each is skipped where its program is missing."""
import os
import re
import shutil
import subprocess
import tempfile

from registry import rule
from tree import Finding

FINDINGS_MAX = 40


class ToolMissing(Exception):
    """The program that a rule needs is not installed."""


def _run(tree, command, paths, beside=()):
    """Runs a program over files of the tree (a made-up tree is written out first, with the files that have to lie beside).
    Returns its lines; none if it is happy."""
    program = shutil.which(command[0])
    if not program:
        raise ToolMissing(f"{command[0]} is not installed")
    if not paths:
        return []
    with tempfile.TemporaryDirectory() as scratch:
        root = tree.root or scratch
        for path in [*paths, *beside] if tree.root is None else ():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                f.write(tree.texts[path])
        done = subprocess.run([program, *command[1:], *paths], cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    lines = [line for line in done.stdout.split("\n") if line.strip()]
    return lines or ["it failed and said nothing"] if done.returncode != 0 else []


def _findings(lines, who):
    """Lines of the form path:line: text become findings there, others findings of the program."""
    places = [re.match(r"(?:mandoc: )?([^\s:]+):(\d+)(?::\d+)?: (.*)", line) for line in lines[:FINDINGS_MAX]]
    return [Finding(place[1], int(place[2]), place[3]) if place else Finding(who, 0, line)
            for place, line in zip(places, lines)]


LAYOUT = "BasedOnStyle: LLVM\nIndentWidth: 4\n"


@rule("clang-format", bad=[{".clang-format": LAYOUT, "src/base/a.c": "int   x=1 ;\n"}],
      good=[{".clang-format": LAYOUT, "src/base/a.c": "int x = 1;\n"}])
def clang_format(tree):
    """C files are laid out as clang-format 14 does it with .clang-format (make format)."""
    program = "clang-format-14" if shutil.which("clang-format-14") else "clang-format"
    if not shutil.which(program) or "version 14." not in subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=False).stdout:
        raise ToolMissing("clang-format 14 is not installed")
    paths = [path for path, _ in tree.c_files()]
    places = {}
    for start in range(0, len(paths), 50):
        for line in _run(tree, [program, "--dry-run", "-Werror", "--style=file"], paths[start:start + 50], [".clang-format"]):
            place = re.match(r"(.+?):(\d+):\d+: error:", line)
            if place:
                places.setdefault(place[1], []).append(place[2])
    return [Finding(path, int(lines[0]), f"{len(lines)} places differ from the layout (make format)")
            for path, lines in places.items()]


@rule("spelling", bad=[{"doc/a.md": "The snapshot is recieved.\n"}, {"src/base/a.c": "/* teh first */\n"}],
      good=[{"doc/a.md": "The snapshot is received.\n"}])
def spelling(tree):
    """No common misspelling in documents, comments and messages (codespell)."""
    paths = [path for path, _ in tree.select(r".*\.(md|[ch]|sh|py|[1-8])", r"tools/[^/]+")
             if path != "tools/tidy/external_rules.py"]
    return _findings(_run(tree, ["codespell", "--ignore-words-list=indx,inout,clen,iff,fro,fpr,nd,te,fo,ans"], paths), "codespell")


@rule("shell", bad=[{"tools/a": "#!/bin/sh\necho $1\n"}, {"tests/cli/a.sh": "#!/bin/sh\ncd x\nif [ $y = 1 ]; then\n"}],
      good=[{"tools/a": '#!/bin/sh\necho "$1"\n'}])
def shell(tree):
    """Shell scripts pass shellcheck."""
    paths = [path for path, text in tree.texts.items() if text.startswith(("#!/bin/sh", "#!/bin/bash", "#!/usr/bin/env bash"))]
    return _findings(_run(tree, ["shellcheck", "--format=gcc"], paths), "shellcheck")


@rule("manuals", bad=[{"man/a.1": ".Dd x\n.Dt A 1\n.Sh NAME\n.Xx\n"}],
      good=[{"man/a.1": ".Dd November 30, 2026\n.Dt A 1\n.Os\n.Sh NAME\n.Nm a\n.Nd does nothing\n"}])
def manuals(tree):
    """Manual pages pass mandoc's lint at the level of warnings."""
    paths = [path for path, _ in tree.select(r"man/.*\.[1-8]")]
    return _findings(_run(tree, ["mandoc", "-Tlint", "-Wwarning"], paths), "mandoc")
