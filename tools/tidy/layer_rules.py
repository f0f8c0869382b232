"""Rules about the floors of the house: who may include whom, and who may call the operating system."""
import re

from registry import rule
from tree import Finding, calls_in, code_of, line_of

ENGINE = ["base", "env", "codec", "format", "log", "map", "cache", "pool", "volume", "queue"]


def _up_to(floor):
    return set(ENGINE[:ENGINE.index(floor) + 1])


# floor: the floors that it may include, itself included.
FLOORS = {
    "base": {"base"},
    "env": {"base", "env"},
    "codec": {"base", "codec"},
    "format": {"base", "codec", "format"},
    **{floor: _up_to(floor) for floor in ENGINE[4:]},
    # The independent witness: it must not share the engine's view of the log and the map.
    "check": {"base", "env", "codec", "format", "check"},
    "library": _up_to("queue") | {"library"},
    "front": _up_to("queue") | {"front"},
    "cli": _up_to("queue") | {"front", "check", "library", "cli"},
}
# Who may use the public header: those that stand on the engine's doors.
PUBLIC_HEADER = {"volume", "queue", "library", "front", "cli"}

# Floors that do not know an operating system: what they need of it comes from env/.
NO_OS = ["base", "codec", "format", "log", "map", "cache", "pool", "volume", "queue", "check"]
NO_OS_HEADERS = {
    "assert.h", "ctype.h", "endian.h", "errno.h", "inttypes.h", "limits.h", "stdalign.h", "stdarg.h", "stdatomic.h",
    "stdbool.h", "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "string.h", "strings.h", "sys/types.h", "sys/uio.h",
}
FLOOR_HEADERS = {
    "codec": {"lz4.h", "lz4hc.h", "zstd.h", "zstd_errors.h", "xxhash.h", "xxh_x86dispatch.h"},
    "check": {"jansson.h"},
}
OS_CALLS = "|".join("""
    open openat openat2 creat close read write pread pwrite preadv2? pwritev2? readv writev fsync fdatasync syncfs sync
    sync_file_range fallocate posix_fallocate posix_fadvise ftruncate truncate lseek mmap munmap msync madvise ioctl fcntl
    flock f?stat lstat statx unlink rename mkdir socket socketpair connect accept4? bind listen send(?:to|msg)? recv(?:from|msg)?
    p?poll select epoll_\\w+ eventfd timerfd_\\w+ signalfd io_uring_\\w+ pthread_\\w+ thrd_\\w+ mtx_\\w+ cnd_\\w+ sem_\\w+
    clock_\\w+ gettimeofday time nanosleep sleep sched_\\w+ getrandom getentropy s?random fork vfork exec[vl]\\w* waitpid kill raise
    getenv setenv fopen fdopen fclose fread fwrite fflush v?f?printf puts fputs putchar perror exit _exit quick_exit atexit abort
    sigaction sigprocmask sysconf syscall getpid gettid getpagesize""".split())

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"]+)[>\"]", re.M)


def includes_of(text):
    """(line, '<' or '"', name); read from the raw text because a quoted name is a literal."""
    kept = code_of(text)
    return [(line_of(text, m.start()), m[1], m[2]) for m in _INCLUDE.finditer(text) if kept[m.start(1)] != " "]


def floor_of(path):
    parts = path.split("/")
    return parts[1] if parts[0] == "src" and len(parts) > 2 else None


@rule("layers",
      bad=[{"src/log/a.c": '#include "pool/pool.h"\n', "src/pool/pool.h": ""},
           {"src/codec/a.h": '#include "env/env.h"\n', "src/env/env.h": ""},
           {"src/format/a.c": '#include "env/env.h"\n', "src/env/env.h": ""},
           {"src/check/a.c": '#include "log/slots.h"\n', "src/log/slots.h": ""},
           {"src/map/a.c": '#include "ashlar.h"\n', "include/ashlar.h": ""},
           {"src/extra/a.c": ""},
           {"src/queue/a.c": '#include "tests/tap.h"\n', "tests/tap.h": ""},
           {"src/front/a.c": '#include "check/check.h"\n', "src/check/check.h": ""},
           {"src/base/a.c": '#include "gone.h"\n'},
           {"include/ashlar.h": '#include "base/error.h"\n', "src/base/error.h": ""}],
      good=[{"src/log/a.c": '#include "log/a.h"\n#include "format/b.h"\n', "src/log/a.h": "", "src/format/b.h": ""},
            {"src/library/a.c": '#include "ashlar.h"\n', "include/ashlar.h": ""},
            {"src/log/a.c": '/* #include "pool/pool.h" */\n'},
            {"tests/unit/a.c": '#include "pool/pool.h"\n', "src/pool/pool.h": ""}])
def layers(tree):
    """Each floor includes only itself and the floors under it."""
    for path, text in tree.select(r"src/.*\.[ch]", r"include/.*\.h"):
        floor = floor_of(path)
        if path.startswith("src/") and floor not in FLOORS:
            yield Finding(path, 0, f"src/{floor} is not a floor of the house: name it in tools/tidy/layer_rules.py")
            continue
        for line, kind, name in includes_of(text):
            if kind == "<":
                continue
            if name == "ashlar.h":
                if floor is not None and floor not in PUBLIC_HEADER:
                    yield Finding(path, line, "ashlar.h is for volume/ and what stands above it")
            elif f"src/{name}" not in tree.texts:
                yield Finding(path, line, f'"{name}" is no file below src/: name includes from there, as floor/file.h')
            elif floor is None or name.split("/")[0] not in FLOORS[floor]:
                yield Finding(path, line, f'"{name}" is not under {path.rsplit("/", 1)[0]}: includes go only downward')


@rule("os-headers",
      bad=[{"src/log/a.c": "#include <unistd.h>\n"}, {"src/map/a.c": "#include <pthread.h>\n"},
           {"src/format/a.c": "#include <zstd.h>\n"}, {"src/pool/a.h": "#include <time.h>\n"}],
      good=[{"src/env/a.c": "#include <unistd.h>\n"}, {"src/codec/a.c": "#include <zstd.h>\n"},
            {"src/pool/a.c": "#include <string.h>\n#include <sys/uio.h>\n"}])
def os_headers(tree):
    """The floors above env/ and beside it include only headers of the C language; codec/ its libraries too."""
    for floor in NO_OS:
        for path, text in tree.select(rf"src/{floor}/.*\.[ch]"):
            for line, kind, name in includes_of(text):
                if kind == "<" and name not in NO_OS_HEADERS | FLOOR_HEADERS.get(floor, set()):
                    yield Finding(path, line, f"<{name}> belongs to the operating system or to another floor: ask env/")


@rule("os-calls",
      bad=[{"src/log/a.c": "int f(void)\n{\n    return fsync(3);\n}\n"},
           {"src/pool/a.c": "void f(void)\n{\n    pthread_mutex_lock(&m);\n}\n"},
           {"src/cache/a.c": "long f(void)\n{\n    return time(NULL);\n}\n"},
           {"src/queue/a.c": 'void f(void)\n{\n    printf("x");\n}\n'},
           {"src/volume/a.c": "void f(void)\n{\n    clock_gettime(0, &t);\n}\n"}],
      good=[{"src/log/a.c": "int f(struct device *d)\n{\n    return d->ops->open(d) + device_open(d); /* fsync( */\n}\n"},
            {"src/env/a.c": "int f(void)\n{\n    return fsync(3);\n}\n"}])
def os_calls(tree):
    """Only env/ (and the doors: front/, cli/, library/) calls the operating system; the engine prints nothing."""
    for floor in NO_OS:
        for path, text in tree.select(rf"src/{floor}/.*\.[ch]"):
            for line, name in calls_in(text, OS_CALLS):
                yield Finding(path, line, f"{name}() calls the operating system: take it from env/")
