"""Rules about text of every kind: heads, blanks, unfinished marks, words that belong to somebody's machine."""
import re

from registry import rule
from tree import Finding, line_of

# Spelled in two pieces so that this file does not catch itself.
MARKS = ("TO" + "DO", "FIX" + "ME", "X" + "XX", "T" + "BD")
HEAD_CHARACTERS_MIN = 30


@rule("head-comment", bad=[{"src/base/a.c": '#include "base/a.h"\n'}, {"src/base/a.h": "/* a */\n#ifndef X\n"},
                           {"tools/a": "#!/bin/sh\nset -eu\n"}, {"tests/cli/a.py": "#!/usr/bin/env python3\nimport os\n"},
                           {"tests/cli/a.sh": "#!/bin/sh\n# x\n"}],
      good=[{"src/base/a.c": "/*\n * Bitmaps: one bit a slot, found word by word.\n */\n"},
            {"src/base/a.c": "/* Bitmaps: one bit a slot, found word by word. */\n"},
            {"tools/a": "#!/bin/sh\n# Says what is missing, and installs it.\nset -eu\n"},
            {"tests/cli/a.py": '#!/usr/bin/env python3\n"""Says what is missing, and installs it."""\n'}])
def head_comment(tree):
    """A file begins with a comment that says what it is."""
    for path, text in tree.select(r".*\.[ch]", r"tools/.*", r"tests/.*\.(py|sh)", r"run|test|\.ci/run"):
        if path.endswith((".c", ".h")):
            head = re.match(r"\s*/\*(.*?)\*/", text, re.S)
        elif "python" in text.split("\n", 1)[0] or path.endswith(".py"):
            head = re.match(r'(?:#!.*\n)?"""(.*?)"""', text, re.S)
        elif text.startswith("#!"):
            head = re.match(r"#!.*\n((?:#.*\n)+)", text)
        else:
            continue
        if not head or len(re.sub(r"[\s*#]+", " ", head[1]).strip()) < HEAD_CHARACTERS_MIN:
            yield Finding(path, 1, "it does not begin with a comment that says what it is")


@rule("blanks", bad=[{"src/base/a.c": "\tx();\n"}, {"src/base/a.c": "x(); \n"}, {"doc/a.md": "text \n"},
                     {"src/base/a.c": "x();"}, {"src/base/a.c": "x();\r\n"}, {"tools/a": "x\n\n\n"}],
      good=[{"src/base/a.c": "    x();\n"}, {"Makefile": "a:\n\tx\n"}, {"tools/a": ""}])
def blanks(tree):
    """No tabs (but in a Makefile), no blanks at line ends, one newline at the end of a file."""
    for path, text in tree.texts.items():
        for number, line in enumerate(text.split("\n"), 1):
            if line != line.rstrip():
                yield Finding(path, number, "blanks at the end of the line")
            if "\t" in line and path != "Makefile" and not path.startswith("tests/golden/"):
                yield Finding(path, number, "a tab")
        if text and (not text.endswith("\n") or text.endswith("\n\n")):
            yield Finding(path, 0, "it does not end with exactly one newline")


@rule("marks", bad=[{"src/base/a.c": f"/* {mark}: later */\n"} for mark in MARKS],
      good=[{"src/base/a.c": 'mkstemp("/tmp/a.XXXXXX");\n'}])
def marks(tree):
    """Nothing unfinished is left behind: what is to be done is an issue, not a mark in the text."""
    pattern = re.compile(r"\b(" + "|".join(MARKS) + r")\b")
    for path, text in tree.texts.items():
        for match in pattern.finditer(text):
            yield Finding(path, line_of(text, match.start()), f"unfinished mark {match[1]}")


# Paths and hosts of somebody's machine, and where packages come from. Bracketed so that this file does not catch itself.
_FOREIGN = re.compile(r"/hom[e]/\w|/roo[t]/|/wor[k]/|/User[s]/\w|(?:deb|snapshot|security|ftp)[.]debian[.]org|registry[.]npm\w+|"
                      r"pypi[.]org|files[.]pythonhosted|crates[.]io|proxy[.]golang|archive[.]ubuntu", re.I)


@rule("foreign", bad=[{"tests/a.sh": "cd /hom" + "e/me/x\n"}, {"HACKING.md": "from deb.debian" + ".org\n"},
                      {"src/base/a.c": '"/wor' + 'k/x"\n'}, {"tools/a": "https://pypi" + ".org/x\n"}],
      good=[{"HACKING.md": "apt-get install gcc, in /usr/share/doc, build/release/work\n"}])
def foreign(tree):
    """No path of one machine and no host that packages come from."""
    for path, text in tree.texts.items():
        for match in _FOREIGN.finditer(text):
            yield Finding(path, line_of(text, match.start()), f"'{match[0]}' belongs to one machine or place")


@rule("executable-names", bad=[{"tests/cli/a.sh": "echo x\n"}, {"tools/a": "echo x\n"}],
      good=[{"tests/cli/a.sh": "#!/bin/sh\n# x\n"}, {"tools/tidy/a.py": '"""x"""\n'}])
def executable_names(tree):
    """A script says which interpreter runs it."""
    for path, text in tree.select(r"tools/[^/.]+", r"tests/.*\.sh", r"run|test|\.ci/run"):
        if not text.startswith("#!"):
            yield Finding(path, 1, "it does not begin with #! and an interpreter")
