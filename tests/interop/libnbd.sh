#!/bin/bash
# What a client must not send, by libnbd without its checks: each an error with the right number, or a clean end; and the
# other ways to reach a server: standard input, socket activation, TCP.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"
needs python3-libnbd

begin_server 16M disk
export URI=$uri BACKEND SOCKET=$socket

python() { # NAME: the program on standard input is a point
    local name=$1
    cat >"$directory/script.py"
    run "$python_nbd" "$directory/script.py"
    ok "$name" is_status 0
}

cat >common.py <<'PYTHON'
import errno, os, nbd
def connect(*contexts, structured=True, strict=0):
    h = nbd.NBD()
    h.set_strict_mode(strict)
    h.set_request_structured_replies(structured)
    for c in contexts:
        h.add_meta_context(c)
    h.connect_uri(os.environ["URI"])
    return h
def fails(number, call, *args, **kw):
    try:
        call(*args, **kw)
    except nbd.Error as e:
        assert e.errno == errno.errorcode[number], (e.errno, errno.errorcode[number], e.string)
    else:
        raise AssertionError("it should fail")
def alive(h):
    assert h.pread(512, 0) is not None
SIZE = 16 << 20
PYTHON
export PYTHONPATH=$directory

for structured in True False; do
    python "out of range, structured replies $structured" <<PYTHON
from common import *
h = connect(structured=$structured)
fails(errno.EINVAL, h.pread, 512, SIZE)
fails(errno.EINVAL, h.pread, 512, SIZE - 511)
fails(errno.EINVAL, h.pread, 512, 2**63)
fails(errno.EINVAL, h.pread, 512, 2**64 - 1)
fails(errno.ENOSPC, h.pwrite, b"x" * 512, SIZE)
fails(errno.ENOSPC, h.pwrite, b"x" * 512, 2**64 - 512)
fails(errno.ENOSPC, h.zero, 512, SIZE)
fails(errno.EINVAL, h.trim, 512, SIZE)
fails(errno.EINVAL, h.cache, 512, SIZE)
alive(h)
PYTHON
    python "flags that do not belong, structured replies $structured" <<PYTHON
from common import *
h = connect(structured=$structured)
fails(errno.EINVAL, h.pwrite, b"x" * 512, 0, flags=nbd.CMD_FLAG_DF)
fails(errno.EINVAL, h.pwrite, b"x" * 512, 0, flags=0x80)
fails(errno.EINVAL, h.pread, 512, 0, flags=nbd.CMD_FLAG_NO_HOLE)
fails(errno.EINVAL, h.trim, 512, 0, flags=nbd.CMD_FLAG_FAST_ZERO)
fails(errno.EINVAL, h.cache, 512, 0, flags=nbd.CMD_FLAG_REQ_ONE)
fails(errno.EINVAL, h.zero, 512, 0, flags=0x8000)
fails(errno.EINVAL, h.flush, flags=nbd.CMD_FLAG_NO_HOLE)
h.pread(512, 0, flags=nbd.CMD_FLAG_FUA)
h.flush(flags=nbd.CMD_FLAG_FUA)
alive(h)
PYTHON
done

python "no bytes at all" <<'PYTHON'
from common import *
h = connect()
for offset in (0, 4096, SIZE):
    h.pwrite(b"", offset)
    h.zero(0, offset)
    h.trim(0, offset)
    h.cache(0, offset)
    assert h.pread(0, offset) == b""
alive(h)
PYTHON

python "large and unaligned" <<'PYTHON'
from common import *
h = connect()
data = bytes(i * 7 & 255 for i in range(1 << 16)) * 17
h.pwrite(data, 1)
assert h.pread(len(data), 1) == bytearray(data)
h.pwrite(data[:1048590], 3)
assert h.pread(1048590, 3) == bytearray(data[:1048590])
h.pwrite(b"y" * (16 << 20), 0)
assert h.pread(16 << 20, 0) == bytearray(b"y" * (16 << 20))
PYTHON

python "block status without a context" <<'PYTHON'
from common import *
h = connect()
fails(errno.EINVAL, h.block_status, 4096, 0, lambda *a: 0)
alive(h)
PYTHON

python "block status, its rules" <<'PYTHON'
from common import *
h = connect("base:allocation")
h.trim(SIZE, 0)
h.pwrite(b"x" * 65536, 1 << 20)
def status(length, offset, flags=0):
    got = []
    def note(context, at, entries, error):
        assert context == "base:allocation" and at == offset
        got.extend(zip(entries[0::2], entries[1::2]))
        return 0
    h.block_status(length, offset, note, flags)
    return got
one = status(SIZE, 0, nbd.CMD_FLAG_REQ_ONE)
assert len(one) == 1 and 0 < one[0][0] <= SIZE, one
all = status(SIZE, 0)
assert sum(n for n, _ in all[:-1]) < SIZE and all[0][0] <= 1 << 20 and all[0][1] == 3, all
assert any(flags == 0 for _, flags in all), all
assert status(1, (1 << 20) + 5) == [(1, 0)]
fails(errno.EINVAL, h.block_status, 0, 0, lambda *a: 0)
fails(errno.EINVAL, h.block_status, 512, SIZE, lambda *a: 0)
fails(errno.EINVAL, h.block_status, 512, 0, lambda *a: 0, flags=nbd.CMD_FLAG_DF)
alive(h)
PYTHON

python "zeroes that keep their space" <<'PYTHON'
from common import *
h = connect("base:allocation")
h.zero(1 << 20, 4 << 20, flags=nbd.CMD_FLAG_NO_HOLE)
h.zero(1 << 20, 6 << 20, flags=nbd.CMD_FLAG_FAST_ZERO)
got = []
h.block_status(1 << 20, 4 << 20, lambda c, o, e, err: got.extend(e) or 0)
assert got == [1 << 20, 2], got
assert h.pread(1 << 20, 4 << 20) == bytearray(1 << 20)
PYTHON

python "the options by hand" <<'PYTHON'
from common import *
h = nbd.NBD()
h.set_opt_mode(True)
h.connect_unix(os.environ["SOCKET"])
names = []
assert h.opt_list(lambda name, description: names.append(name) or 0) == 1 and names == ["disk"]
h.set_export_name("no such")
fails(errno.ENOENT, h.opt_info)
fails(errno.ENOENT, h.opt_go)
h.set_export_name("")
h.set_full_info(True)
h.opt_info()
assert h.get_canonical_export_name() == "disk" and h.get_size() == SIZE
assert h.get_block_size(nbd.SIZE_MINIMUM) == 1 and h.get_block_size(nbd.SIZE_MAXIMUM) == 32 << 20
contexts = []
assert h.opt_list_meta_context(lambda name: contexts.append(name) or 0) == 1 and contexts == ["base:allocation"]
h.add_meta_context("base:allocation")
h.add_meta_context("x-unknown:thing")
h.opt_go()
assert h.can_meta_context("base:allocation") and not h.can_meta_context("x-unknown:thing")
alive(h)
h.shutdown()
PYTHON

python "EXPORT_NAME instead of GO" <<'PYTHON'
from common import *
h = nbd.NBD()
h.set_handshake_flags(0)
h.connect_uri(os.environ["URI"])
assert h.get_size() == SIZE and h.can_flush() and h.can_fua() and h.get_protocol() == "newstyle"
alive(h)
PYTHON

python "several connections see one volume" <<'PYTHON'
from common import *
a, b = connect(), connect(structured=False)
assert a.can_multi_conn()
for i in range(50):
    a.pwrite(bytes([i]) * 4096, i * 4096)
    assert b.pread(4096, i * 4096) == bytearray([i]) * 4096
    b.flush()
PYTHON

python "a client that leaves with requests under way" <<'PYTHON'
from common import *
for i in range(100):
    h = connect()
    for j in range(20):
        h.aio_pread(nbd.Buffer(65536), j * 65536)
    del h
alive(connect())
PYTHON
end_server

if [ "$BACKEND" = ashlar ]; then
    export ON_STDIO="[\"$ASHLAR\", \"serve\", \"$directory/pool\", \"--stdio\"]"
    export ON_SOCKET="[\"$ASHLAR\", \"serve\", \"$directory/pool\"]"
else
    export ON_STDIO="[\"$MEMORY_SERVER\", \"--stdio\", \"disk:$((16 << 20))\"]"
    export ON_SOCKET="[\"$MEMORY_SERVER\", \"--activation\", \"disk:$((16 << 20))\"]"
fi
python "standard input and output" <<'PYTHON'
from common import *
h = nbd.NBD()
h.connect_command(eval(os.environ["ON_STDIO"]))
assert h.get_size() == SIZE
h.pwrite(b"s" * 3000000, 5)
assert h.pread(3000000, 5) == bytearray(b"s" * 3000000)
h.shutdown()
PYTHON
python "socket activation" <<'PYTHON'
from common import *
h = nbd.NBD()
h.connect_systemd_socket_activation(eval(os.environ["ON_SOCKET"]))
assert h.get_size() == SIZE
h.pwrite(b"a" * 512, 0)
alive(h)
h.shutdown()
PYTHON
finish
