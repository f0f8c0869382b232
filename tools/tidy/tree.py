"""What the rules look at: a tree of text files, on disk or made up by a rule's own examples, and C text taken apart.

Nothing here judges. A Tree maps paths (relative to the project, with slashes) to texts. C is read with a scanner that knows
comments and literals but no grammar; that is enough because clang-format fixes the layout: a line that is just "{" in column
0 opens a function and nothing else does, and "}" in column 0 ends it.
"""
import os
import re

# Where the project's own text lives. Everything else (build directories, editor files) is not looked at.
DIRECTORIES = (".ci", "assay", "bench", "doc", "examples", "include", "man", "preload", "src", "tests", "tools")
TOP_FILES = re.compile(r"^(Makefile|run|test|LICENSE|meson\.build|meson_options\.txt|\.clang-format|[A-Z]+\.md)$")
BINARY_BYTES = 4096

_TOKENS = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)


class Finding:
    """Something wrong: where and what."""

    def __init__(self, path, line, text):
        self.path = path
        self.line = line
        self.text = text

    def __str__(self):
        return f"{self.path}:{self.line}: {self.text}" if self.line else f"{self.path}: {self.text}"


class Tree:
    """Texts by path. `root` is None for a made-up tree."""

    def __init__(self, texts, root=None):
        self.texts = texts
        self.root = root

    @classmethod
    def from_disk(cls, root):
        texts = {}
        paths = [name for name in os.listdir(root) if TOP_FILES.match(name)]
        for top in DIRECTORIES:
            for folder, folders, names in os.walk(os.path.join(root, top)):
                folders[:] = [name for name in folders if name not in ("__pycache__", "corpus")]
                paths += [os.path.relpath(os.path.join(folder, name), root) for name in names]
        for path in sorted(paths):
            with open(os.path.join(root, path), "rb") as f:
                raw = f.read()
            if b"\0" not in raw[:BINARY_BYTES]:
                texts[path] = raw.decode("utf-8", "replace")
        return cls(texts, root)

    def select(self, *patterns):
        """Pairs (path, text) of the files whose whole path matches one of the regular expressions."""
        rule = re.compile("|".join(f"(?:{p})" for p in patterns))
        return [(path, text) for path, text in self.texts.items() if rule.fullmatch(path)]

    def c_files(self, under=r"(?:src|include|tests|bench|examples|assay|preload)"):
        return self.select(under + r"/.*\.[ch]")


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def blank(match_text):
    return re.sub(r"[^\n]", " ", match_text)


def code_of(text):
    """The text with comments and the insides of literals blanked: positions and lines stay what they were."""
    def replace(match):
        token = match[0]
        return blank(token) if token[0] == "/" else token[0] + blank(token[1:-1]) + token[-1]
    return _TOKENS.sub(replace, text)


def functions_of(text):
    """(name, first line of the body, number of lines from { to }) for each function."""
    lines = code_of(text).split("\n")
    start, found = None, []
    for number, line in enumerate(lines, 1):
        if line.rstrip() == "{" and start is None:
            start = number
        elif line.startswith("}") and start is not None:
            head = "\n".join(lines[max(0, start - 12):start - 1])
            head = head[max(head.rfind(";"), head.rfind("}")) + 1:]
            name = re.search(r"(\w+)\s*\(", head)
            found.append((name[1] if name else "?", start, number - start + 1))
            start = None
    return found


def code_line_count(text):
    return sum(1 for line in code_of(text).split("\n") if line.strip())


def calls_in(text, names):
    """(line, name) of each call of one of the functions; a member (a->f, a.f) or a longer name is none."""
    pattern = re.compile(r"(?<![\w.>])(" + names + r")\s*\(")
    code = code_of(text)
    return [(line_of(code, match.start()), match[1]) for match in pattern.finditer(code)]


def top_level_declarations(text):
    """(line, declaration) at file level: bodies in braces are cut to {}, preprocessor lines are left out."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: blank(m[0]), code_of(text), flags=re.M)
    depth, piece, start, found = 0, "", 0, []
    for position, char in enumerate(code):
        if depth == 0 and not piece.strip() and not char.isspace():
            piece, start = "", position
        if char == "}":
            depth -= 1
        if depth == 0:
            piece += char
        if char == "{":
            depth += 1
        ends_function = char == "}" and depth == 0 and "(" in piece and "=" not in piece
        if depth == 0 and (char == ";" or ends_function):
            found.append((line_of(code, start), " ".join(piece.split())))
            piece = ""
    return found
