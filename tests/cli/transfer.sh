#!/bin/bash
# import and export: what goes in comes out, holes stay holes, nothing half is left behind; without and with a server.
# shellcheck disable=SC1091,SC2154,SC2317  # lib.sh is beside this file and sets what is used here
. "$(dirname "$0")/lib.sh"

MIB=$((1024 * 1024))
# 1 MiB of data, a hole, 3 MiB and a bit, a hole to the end; not a multiple of 512.
make_input() {
    random_file piece $((3 * MIB + 12345))
    head -c $MIB piece >input
    truncate -s $((40 * MIB)) input
    cat piece >>input
    truncate -s $((100 * MIB + 77)) input
}
make_input
ashlar create alone --size 256M >/dev/null
ashlar create served --size 256M >/dev/null

# The input, then zeroes to the end of its last sector.
same_as_input() {
    cmp -n "$(bytes_of input)" input "$1" && [ "$(bytes_of "$1")" -eq $((100 * MIB + 512)) ]
}

round_trip() { # POOL
    local pool=$1
    works "$pool: import of a file" ashlar import "$pool" disk input
    ok "$pool: says how much" prints "disk: 100M, 4.02M of data"
    run ashlar get "$pool" disk size --json
    ok "$pool: the size is rounded up to 512" json_is 'j["properties"]["size"]' $((100 * MIB + 512))
    works "$pool: export to a file" ashlar export "$pool" disk output
    ok "$pool: it is the same" same_as_input output
    ok "$pool: and as sparse" test "$(held_bytes output)" -le $((6 * MIB))
    sum=$(sha256sum <output)
    fails "$pool: export over a file" 1 "exists already; nothing was changed: --force" ashlar export "$pool" disk output
    ok "$pool: changes nothing" test "$(sha256sum <output)" = "$sum"
    random_file output $((150 * MIB))
    works "$pool: export over a file with --force" ashlar export "$pool" disk output --force
    # By any name of the pool's file; and no file that somebody has locked, as the server of a pool has.
    ln -f "$pool" "$pool.link"
    fails "$pool: export over the pool" 1 "is the pool itself; nothing was changed" ashlar export "$pool" disk "$pool.link" --force
    fails "$pool: export over a pool in use" 1 "is locked by another process; nothing was changed" \
        flock output "$ASHLAR" export "$pool" disk output --force
    rm "$pool.link"
    ok "$pool: it is the same" same_as_input output
    rm output
    "$ASHLAR" export "$pool" disk - >output 2>"$err"
    ok "$pool: export to standard output, a file" same_as_input output
    ok "$pool: which is sparse too" test "$(held_bytes output)" -le $((6 * MIB))
    rm output
    "$ASHLAR" export "$pool" disk - 2>"$err" | cat >output
    ok "$pool: export to standard output, a pipe" same_as_input output
    rm output
    run ashlar export "$pool" disk output --json
    ok "$pool: export --json" json_is 'j["bytes"]' $((100 * MIB + 512))
    rm output
    run ashlar import "$pool" piped - --json
    ok "$pool: import of nothing is refused" is_status 1
    # shellcheck disable=SC2002
    cat input | "$ASHLAR" import "$pool" piped - -o compression=lz4 -o record-size=64K >"$out" 2>"$err"
    ok "$pool: import of a pipe" prints "piped: 100M"
    ashlar export "$pool" piped output >/dev/null
    ok "$pool: it is the same" same_as_input output
    run ashlar get "$pool" piped record-size
    ok "$pool: with its properties" prints_line 64K
    rm output
    "$ASHLAR" import "$pool" redirected - <input >"$out" 2>"$err"
    ok "$pool: import of a redirected file" prints "redirected: 100M, 4.02M of data"

    fails "$pool: import of the pool" 1 "is the pool itself" ashlar import "$pool" self "$pool"
    # What is no disk's bytes, by what it begins with; --raw takes it all the same.
    { printf 'QFI\373\0\0\0\3' && head -c 65528 piece; } >image.qcow2
    fails "$pool: import of a qcow2 image" 1 "'image.qcow2' is a qcow2 image, not the bytes of a disk: make those with qemu-img convert -O raw" \
        ashlar import "$pool" image image.qcow2
    gzip -c piece >piece.gz
    fails "$pool: import of a compressed file" 1 "is compressed with gzip: pipe it in unpacked (zcat FILE" ashlar import "$pool" image piece.gz
    run ashlar list "$pool" --json
    ok "$pool: neither makes a volume" json_is 'sorted(v["name"] for v in j["volumes"])' "['disk', 'piped', 'redirected']"
    works "$pool: import --raw takes it as it is" ashlar import "$pool" image image.qcow2 --raw
    ashlar export "$pool" image output >/dev/null
    ok "$pool: byte for byte" cmp image.qcow2 output
    ashlar destroy "$pool" image >/dev/null
    rm output

    fails "$pool: import over a volume" 1 "exists already; --force overwrites" ashlar import "$pool" disk piece
    run ashlar list "$pool" --json
    ok "$pool: changes nothing" json_is 'sorted(v["name"] for v in j["volumes"])' "['disk', 'piped', 'redirected']"
    works "$pool: import over a volume with --force" ashlar import "$pool" disk piece --force
    ashlar export "$pool" disk output >/dev/null
    ok "$pool: what was imported is there" cmp -n "$(bytes_of piece)" piece output
    ok "$pool: and zeroes behind it" cmp -i "$(bytes_of piece):0" -n 90000000 output /dev/zero
    rm output
    ashlar create "$pool" tiny 1M >/dev/null
    fails "$pool: import of more than fits" 1 "holds 1M" ashlar import "$pool" tiny input --force
    fails "$pool: properties of a volume that exists" 1 "see ashlar set" ashlar import "$pool" tiny piece --force -o compression=off
    ashlar destroy "$pool" tiny >/dev/null

    : >empty
    fails "$pool: import of an empty file" 1 "the input is empty" ashlar import "$pool" new empty
    fails "$pool: import of a directory" 1 "directory" ashlar import "$pool" new .
    fails "$pool: import of a file that is not there" 1 "No such file" ashlar import "$pool" new nofile
    fails "$pool: export of a volume that is not there" 1 "no volume" ashlar export "$pool" nothing output
    ok "$pool: leaves no file" test ! -e output
    fails "$pool: export into a directory that is not there" 1 "No such file" ashlar export "$pool" disk no/output
    "$ASHLAR" export "$pool" disk - 2>"$err" | head -c 100 >/dev/null
    ok "$pool: export into a pipe that ends" says "Broken pipe"
    run bash -c '"$ASHLAR" export "$1" piped - >/dev/full' - "$pool"
    ok "$pool: export to a full disk" says "No space left"

    random_file big $((300 * MIB))
    fails "$pool: import of more than the pool holds" 1 "the pool is full after" ashlar import "$pool" big big
    ok "$pool: says that nothing was kept" says "nothing of it was kept"
    run ashlar list "$pool" --json
    ok "$pool: and nothing was" json_is 'sorted(v["name"] for v in j["volumes"])' "['disk', 'piped', 'redirected']"
    works "$pool: the pool still takes what fits" ashlar import "$pool" small piece
    for name in disk piped redirected small; do
        ashlar destroy "$pool" $name >/dev/null || ok "$pool: destroy $name" false
    done
    run ashlar list "$pool" --json
    ok "$pool: all are gone" json_is 'j["volumes"]' "[]"
}

round_trip alone
ok "a server" serve served
round_trip served

# Interrupted: a slow source, then the user gives up.
# shellcheck disable=SC2094  # slow is a pipe
interrupted() { # POOL
    local pool=$1 command
    mkfifo slow
    "$ASHLAR" import "$pool" slow - <slow >"$out" 2>"$err" &
    command=$!
    exec 8>slow
    head -c 5000000 input >&8
    sleep 1
    kill -INT "$command"
    ended "$command"
    exec 8>&-
    rm slow
    ok "$pool: an interrupted import" is_status 1
    ok "$pool: says so" says "given up"
    ok "$pool: leaves nothing" eventually no_volumes "$pool"
}
no_volumes() {
    run ashlar list "$1" --json
    json_is 'j["volumes"]' "[]"
}
interrupted alone
interrupted served

# Sockets as standard input and output.
cat >through_sockets.py <<'PYTHON'
import socket, subprocess, sys
ours, theirs = socket.socketpair()
pool = sys.argv[2]
p = subprocess.Popen([sys.argv[1], "import", pool, "socket", "-"], stdin=theirs, stdout=subprocess.DEVNULL)
theirs.close()
ours.sendall(open("piece", "rb").read())
ours.close()
status = p.wait()
ours, theirs = socket.socketpair()
p = subprocess.Popen([sys.argv[1], "export", pool, "socket", "-"], stdout=theirs, stderr=subprocess.DEVNULL)
theirs.close()
back = b""
while block := ours.recv(65536):
    back += block
piece = open("piece", "rb").read()
print("status", status, p.wait(), "same", back[:len(piece)] == piece, "zeroes behind", not any(back[len(piece):]))
PYTHON
for pool in alone served; do
    run python3 through_sockets.py "$ASHLAR" $pool
    ok "$pool: sockets" prints_line "status 0 0 same True zeroes behind True"
    ashlar destroy $pool socket >/dev/null
done

# On a terminal, whatever takes over a second shows how far it is.
mkfifo slow
python3 - "$ASHLAR" import alone shown - <<'PYTHON' >"$out" 2>"$err" &
import os, pty, sys
source = os.open("slow", os.O_RDONLY)
def child_read(fd):
    return os.read(fd, 4096)
pid, terminal = pty.fork()
if pid == 0:
    os.dup2(source, 0)
    os.execv(sys.argv[1], sys.argv[1:])
seen = b""
try:
    while True:
        block = os.read(terminal, 4096)
        if not block:
            break
        seen += block
except OSError:
    pass
os.waitpid(pid, 0)
print(seen.decode().replace("\r", "\n"))
PYTHON
command=$!
exec 8>slow
for _ in 1 2 3 4 5 6; do
    head -c 1000000 piece >&8
    sleep 0.4
done
exec 8>&-
wait "$command"
rm slow
ok "a terminal shows progress" prints "import shown  "
ok "and the result" prints "shown: 5.72M"
ok "a pipe does not" test ! -s "$err"
ashlar destroy alone shown >/dev/null

# Killed: what was begun has a name that says so, and the next one tells.
mkfifo slow
"$ASHLAR" import alone killed - <slow >"$out" 2>"$err" &
command=$!
exec 8>slow
head -c 70000000 input >&8
kill -KILL "$command"
wait "$command" 2>/dev/null
exec 8>&-
run ashlar list alone --json
ok "a killed import is there under its working name" json_is '[v["name"] for v in j["volumes"]]' "['killed.importing']"
fails "the next import of that name tells" 1 "was cut short: destroy it first" ashlar import alone killed piece
works "which can be done" ashlar destroy alone killed.importing
works "and then it works" ashlar import alone killed piece
finish
