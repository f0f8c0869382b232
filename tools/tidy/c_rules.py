"""Rules about C code: size, dangerous calls, assertions, state, headers."""
import re

from layer_rules import floor_of, includes_of
from registry import rule
from tree import Finding, calls_in, code_line_count, code_of, functions_of, line_of, top_level_declarations

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
LINE_COLUMNS_MAX = 120

# name: what to use instead.
BANNED = {
    "strcpy": "text_append or memcpy with a known length", "strcat": "text_append", "stpcpy": "text_append",
    "sprintf": "snprintf or text_append", "vsprintf": "vsnprintf", "gets": "getline", "strtok": "strchr or strsep",
    "strncpy": "memcpy, and say where the end is", "strncat": "text_append", "atoi": "strtoll with its errors checked",
    "atol": "strtoll with its errors checked", "atoll": "strtoll with its errors checked", "atof": "strtod",
    "system": "posix_spawn without a shell", "popen": "posix_spawn without a shell", "alloca": "an array or malloc",
    "usleep": "env_sleep_ns", "rand": "prng", "srand": "prng", "random": "prng", "signal": "sigaction",
    "mktemp": "mkstemp", "tmpnam": "mkstemp", "tempnam": "mkstemp", "setjmp": "error returns", "longjmp": "error returns",
    "assert": "CHECK, which stays in every build", "localtime": "localtime_r", "gmtime": "gmtime_r",
    "vfork": "posix_spawn", "bzero": "memset", "bcopy": "memmove",
}


def _lines(count, body="    x();\n"):
    return "{\n" + body * (count - 2) + "}\n"


@rule("file-length", bad=[{"src/base/a.c": "\n" * (FILE_LINES_MAX + 1)}, {"tools/a": "\n" * (FILE_LINES_MAX + 1)}],
      good=[{"src/base/a.c": "\n" * FILE_LINES_MAX}])
def file_length(tree):
    """A file is one noun: at most 600 lines."""
    for path, text in tree.select(r".*\.[ch]", r"tools/.*", r"tests/.*\.(py|sh)"):
        count = text.count("\n")
        if count > FILE_LINES_MAX:
            yield Finding(path, 0, f"{count} lines, more than {FILE_LINES_MAX}: it holds more than one noun")


@rule("function-length", bad=[{"src/base/a.c": "int f(void)\n" + _lines(FUNCTION_LINES_MAX + 1)},
                              {"tests/unit/a.c": "int f(int a,\n      int b)\n" + _lines(FUNCTION_LINES_MAX + 1)}],
      good=[{"src/base/a.c": "int f(void)\n" + _lines(FUNCTION_LINES_MAX) + "int g(void)\n" + _lines(40)}])
def function_length(tree):
    """A function is at most 70 lines from brace to brace."""
    for path, text in tree.c_files():
        for name, line, count in functions_of(text):
            if count > FUNCTION_LINES_MAX:
                yield Finding(path, line, f"{name}() has {count} lines, more than {FUNCTION_LINES_MAX}")


@rule("line-length", bad=[{"src/base/a.c": "/* " + "x" * LINE_COLUMNS_MAX + " */\n"}],
      good=[{"src/base/a.c": "x" * LINE_COLUMNS_MAX + "\n"}])
def line_length(tree):
    """A line of C has at most 120 columns."""
    for path, text in tree.c_files():
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > LINE_COLUMNS_MAX:
                yield Finding(path, number, f"{len(line)} columns, more than {LINE_COLUMNS_MAX}")


@rule("banned-calls", bad=[{"src/cli/a.c": f"void f(void)\n{{\n    {name}(a, b);\n}}\n"} for name in BANNED],
      good=[{"src/cli/a.c": "/* strcpy(a, b) */\nint f(void)\n{\n    return x->system(1) + prng_rand(2);\n}\n"}])
def banned_calls(tree):
    """No call of a function that cannot be used safely, or that has a better twin here."""
    for path, text in tree.c_files():
        for line, name in calls_in(text, "|".join(BANNED)):
            yield Finding(path, line, f"{name}() is banned: use {BANNED[name]}")


@rule("check-effects", bad=[{"src/log/a.c": "    CHECK(n++ < 3);\n"}, {"src/log/a.c": "    CHECK((x = next()));\n"},
                            {"src/log/a.c": "    CHECK_EQ(x -= 1, 2);\n"}, {"src/log/a.c": "    DEBUG_CHECK(--n);\n"}],
      good=[{"src/log/a.c": '    CHECK(a == b);\n    CHECK_LE(a, b);\n    CHECK(a >= 1 && b != 2);\n    CHECK_OP(a, <=, b);\n'}])
def check_effects(tree):
    """No operand of an assertion has a side effect."""
    pattern = re.compile(r"\b(?:DEBUG_)?CHECK(?:_[A-Z]+)?\s*\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)")
    for path, text in tree.c_files("src"):
        code = code_of(text)
        for match in pattern.finditer(code):
            if re.search(r"\+\+|--|(?<![=!<>])=(?!=)", match[1]):
                yield Finding(path, line_of(code, match.start()), "an assertion must not change anything")


@rule("global-state", bad=[{"src/pool/a.c": "static int count;\n"}, {"src/pool/a.c": "int count = 3;\n"},
                           {"src/pool/a.c": "static const char *name = \"x\";\n"},
                           {"src/pool/a.c": "void f(void)\n{\n    static int calls;\n    calls++;\n}\n"},
                           {"src/pool/a.c": "static _Thread_local int depth;\n"},
                           {"src/pool/a.c": "static struct x list = {\n    .a = 1,\n};\n"},
                           {"src/pool/a.c": "static int (*hook)(void);\n"},
                           {"src/pool/a.c": "void f(void)\n{\n    static int (*hooks[])(int a) = {g};\n}\n"}],
      good=[{"src/pool/a.c": "static const char *const names[] = {\"a\"};\nstatic const struct x table[] = {{1, f}};\n"
                             "struct x;\nstatic int f(int a);\nenum e { A, B };\nstruct y {\n    int a;\n};\n"
                             "int f(int a)\n{\n    static const int k = 3;\n    return a + k;\n}\n"
                             "typedef int (*op)(void);\nextern const int z;\n_Static_assert(1 == 1, \"x\");\n"
                             "static int (*const checks[])(int a) = {f};\nint (*find(int a))(void);\n"
                             "void h(void)\n{\n    static int (*const hooks[])(int a) = {f};\n}\n"}])
def global_state(tree):
    """No mutable state outside the objects: two pools in one process know nothing of each other."""
    for path, text in tree.select(r"src/.*\.[ch]"):
        for line, declaration in top_level_declarations(text):
            if _is_mutable_variable(declaration):
                yield Finding(path, line, f"mutable global state: {declaration.split('=')[0].strip().rstrip(';')}")
        code = code_of(text)
        for match in re.finditer(r"^[ \t]+(static\s+(?!inline\b)[^;={]*)", code, re.M):
            if _is_mutable_variable(match[1]):
                yield Finding(path, line_of(code, match.start()), "mutable static variable inside a function")


_FUNCTION_POINTER = re.compile(r"^[\w\s*]+\(\s*\*\s*(const\b)?\s*\w+\s*(?:\[[^\]]*\]\s*)*\)\s*\(")


def _is_mutable_variable(declaration):
    """Whether it defines a variable that is not itself const (what it points at does not matter)."""
    head = declaration.split("=")[0].split("{")[0].strip().rstrip(";").strip()
    if re.match(r"(typedef|extern|_Static_assert)\b", head) or re.match(r"(struct|union|enum)(\s+\w+)?$", head):
        return False
    pointer = _FUNCTION_POINTER.match(head)
    if pointer:
        return not pointer[1]
    if not head or "(" in head:
        return False
    return "const" not in head.rsplit("*", 1)[-1].split()


@rule("own-header-first", bad=[{"src/base/a.c": '#include <stdio.h>\n#include "base/a.h"\n', "src/base/a.h": ""},
                               {"src/base/a.c": "int x;\n", "src/base/a.h": ""}],
      good=[{"src/base/a.c": '#include "base/a.h"\n#include <stdio.h>\n', "src/base/a.h": ""},
            {"src/base/b.c": '#include <stdio.h>\n'}])
def own_header_first(tree):
    """A .c file includes its own header first, so that the header's missing includes show."""
    for path, text in tree.select(r"src/.*\.c"):
        own = path[:-1] + "h"
        if own not in tree.texts:
            continue
        first = next(iter(includes_of(text)), (1, "", ""))
        if "src/" + first[2] != own:
            yield Finding(path, first[0], f'its own header "{own[4:]}" comes first')


@rule("header-guard", bad=[{"src/base/a.h": "#ifndef A_H\n#define A_H\n#endif\n"}, {"src/base/a.h": "#pragma once\n"},
                           {"src/base/a.h": "#ifndef ASHLAR_BASE_A_H\n#endif\n"}],
      good=[{"src/base/a.h": "/* x */\n#ifndef ASHLAR_BASE_A_H\n#define ASHLAR_BASE_A_H\n#endif\n"},
            {"include/ashlar.h": "#ifndef ASHLAR_H\n#define ASHLAR_H\n#endif\n"}])
def header_guard(tree):
    """A header's guard is named after its path."""
    for path, text in tree.c_files():
        if not path.endswith(".h"):
            continue
        name = re.sub(r"\W", "_", re.sub(r"^(src|include)/", "", path)).upper()
        name = name if name.startswith("ASHLAR_") else "ASHLAR_" + name
        if not re.search(rf"^#ifndef {name}\n#define {name}\n", text, re.M):
            yield Finding(path, 0, f"the guard {name} is missing")


# Assertions per thousand lines of code: the least in the floors that hold what is on disk; the aim is 30.
DENSITY_LEAST = {"log": 20, "map": 20}
DENSITY_LINES_MIN = 300
_ASSERTION = re.compile(r"\b(?:DEBUG_)?CHECK(?:_[A-Z]+)?\s*\(|\b_Static_assert\s*\(")


def densities(tree):
    """floor: (assertions, lines of code)"""
    table = {}
    for path, text in tree.select(r"src/\w+/.*\.[ch]"):
        count, lines = table.get(floor_of(path), (0, 0))
        code = code_of(text)
        table[floor_of(path)] = (count + len(_ASSERTION.findall(code)), lines + code_line_count(text))
    return table


@rule("assertions", bad=[{"src/log/a.c": "    x();\n" * 1000}, {"src/map/a.c": "    CHECK(a);\n" * 19 + "    x();\n" * 990}],
      good=[{"src/log/a.c": "    CHECK(a);\n" * 30 + "    x();\n" * 970}, {"src/log/a.c": "    x();\n" * 100}])
def assertions(tree):
    """log/ and map/ hold at least 20 assertions per thousand lines of code (the aim: 30)."""
    for floor, (count, lines) in sorted(densities(tree).items()):
        least = DENSITY_LEAST.get(floor)
        if least and lines >= DENSITY_LINES_MIN and count * 1000 < least * lines:
            yield Finding(f"src/{floor}", 0, f"{count * 1000 / lines:.1f} assertions per thousand lines, fewer than {least}")


@rule("listed-sources", bad=[{"src/base/a.c": "", "src/base/meson.build": "files('b.c')\n"},
                             {"tests/unit/test_a.c": "", "tests/unit/meson.build": "'test_b': [base],\n"}],
      good=[{"src/base/a.c": "", "src/base/meson.build": "files('a.c')\n"},
            {"src/front/nbd/a.c": "", "src/front/meson.build": "files('nbd/a.c')\n"},
            {"tests/unit/test_a.c": "", "tests/unit/meson.build": "'test_a': [base],\n"}])
def listed_sources(tree):
    """Every .c file is built: a meson.build in its directory or above names it."""
    for path, _ in tree.select(r"(src|tests|bench|examples|assay|preload)/.*\.c"):
        parts = path.split("/")
        name = parts[-1][:-2]
        builds = ["/".join(parts[:n] + ["meson.build"]) for n in range(len(parts) - 1, 0, -1)]
        if not any(re.search(rf"\b{re.escape(name)}\b", tree.texts.get(build, "")) for build in builds):
            yield Finding(path, 0, "no meson.build names it: it is not built")


_PROTOTYPE = re.compile(r"(?!typedef\b|static\b|extern\b)[\w\s*]+?\b(\w+)\s*\(")


@rule("unused", bad=[{"src/base/a.h": "int a_f(void);\n", "src/base/a.c": "int a_f(void)\n{\n    return 1;\n}\n"},
                     {"src/base/a.h": "int a_f(int b,\n        int c);\n"},
                     {"src/base/a.h": "int a_f(void);\n", "src/base/a.c": "int a_f(void)\n{\n    return a_f();\n}\n",
                      "src/base/b.c": "/* a_f() */\n"}],
      good=[{"src/base/a.h": "int a_f(void);\n", "src/base/a.c": "int a_f(void)\n{\n    return 1;\n}\n",
             "src/base/b.c": "int b(void)\n{\n    return a_f();\n}\n"},
            {"src/base/a.h": "void a_f(void);\n#define A() a_f()\n", "src/base/a.c": "void a_f(void)\n{\n}\n"},
            {"src/base/a.h": "typedef int (*op)(void);\nstruct x {\n    int (*f)(void);\n};\n"}])
def unused(tree):
    """A function in a header has a user besides the file that defines it: else it is static, or not needed."""
    words = {path: set(re.findall(r"\w+", code_of(text))) for path, text in tree.c_files()}
    for path, text in tree.select(r"src/.*\.h"):
        header = code_of(text)
        for line, declaration in top_level_declarations(text):
            match = _PROTOTYPE.match(declaration)
            if not match or "{" in declaration or "=" in declaration:
                continue
            name = match[1]
            if len(re.findall(rf"\b{name}\b", header)) > 1:
                continue
            definition = re.compile(rf"^[\w\s*]+\b{name}\([^;{{]*\)\s*\n\{{", re.M)
            if not any(name in used and other != path and not definition.search(code_of(tree.texts[other]))
                       for other, used in words.items()):
                yield Finding(path, line, f"{name}() is used nowhere but where it is defined")
