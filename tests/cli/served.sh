#!/bin/bash
# A served pool: who is ready when, who may ask, live verbs, users named, dead and silent servers, signals, addresses.
# shellcheck disable=SC1091,SC2154,SC2317  # lib.sh is beside this file and sets what is used here
. "$(dirname "$0")/lib.sh"

size_of_export() { # URI
    nbdinfo --size "$1" 2>/dev/null
}

ashlar create pool --size 256M >/dev/null
ashlar create pool disk 64M >/dev/null
ok "a server" serve pool
ok "it prints the URI of the volume" grep -qF "nbd+unix:///disk?socket=" "$serve_log"
ok "and the line to type next" grep -q "^next, in another terminal: nbdinfo 'nbd+unix" "$serve_log"
ok "and how to end it" grep -qxF "to end: ashlar stop pool" "$serve_log"
ok "the socket for clients is its user's alone" test "$(stat -c %a pool.nbd)" = 600
ok "so is the control socket" test "$(stat -c %a pool.control)" = 600
fails "a second server" 1 "is already served by process $server; to end it: ashlar stop pool" ashlar serve pool
ln -s pool link
fails "also by another name" 1 "is already served by process $server" ashlar serve link
run ashlar list link --json
ok "verbs find the server by another name too" json_is 'j["volumes"][0]["name"]' disk
uri="nbd+unix:///disk?socket=$directory/pool.nbd"
if have nbdinfo; then
    ok "a client sees the volume" test "$(size_of_export "$uri")" = $((64 * 1024 * 1024))
    works "create while it is served" ashlar create pool second 32M
    ok "it can be connected to at once" test "$(size_of_export "nbd+unix:///second?socket=$directory/pool.nbd")" = $((32 * 1024 * 1024))
    works "rename while it is served" ashlar rename pool second third
    ok "the new name serves" test "$(size_of_export "nbd+unix:///third?socket=$directory/pool.nbd")" = $((32 * 1024 * 1024))
    run size_of_export "nbd+unix:///second?socket=$directory/pool.nbd"
    ok "the old one does not" test ! -s "$out"
    works "resize while it is served" ashlar resize pool third 48M
    ok "a new connection sees it" test "$(size_of_export "nbd+unix:///third?socket=$directory/pool.nbd")" = $((48 * 1024 * 1024))
    works "destroy while it is served" ashlar destroy pool third
else
    skip "clients" "nbdinfo is missing"
fi

connected() {
    run ashlar get pool disk users
    prints_line 1
}
python_nbd=
for candidate in python3 /usr/bin/python3; do
    [ -n "$python_nbd" ] || ! "$candidate" -c 'import nbd' 2>/dev/null || python_nbd=$candidate
done
if [ -n "$python_nbd" ]; then
    "$python_nbd" - "$uri" <<'PYTHON' &
import nbd, sys, time
h = nbd.NBD()
h.connect_uri(sys.argv[1])
time.sleep(60)
PYTHON
    client=$!
    ok "a connected client counts as a user" eventually connected
    fails "destroy of a volume in use names the user" 1 "volume 'disk' is in use by 1 connection (pid $client" ashlar destroy pool disk
    fails "import over a volume in use" 1 "is in use by 1 connection" ashlar import pool disk "$ASHLAR" --force
    run ashlar status pool --json
    ok "status names it too" json_is 'j["server"]["clients"][0]["volume"]' disk
    run ashlar export pool disk copy --json
    ok "export of a volume in use says so" json_is 'j["users"]' 1
    kill "$client"
    wait "$client" 2>/dev/null
else
    skip "users" "python3-libnbd is missing"
fi

if [ "$(id -u)" -eq 0 ]; then
    chmod 755 .
    fails "another user is not answered" 1 "ermission" as_nobody "$ASHLAR" list pool
else
    skip "another user is not answered" "only root can be somebody else"
fi

works "stop" ashlar stop pool
ok "says that it is gone" prints "process $server is gone"
ended "$server"
ok "the server ended well" is_status 0
ok "both sockets are gone" test ! -e pool.nbd -a ! -e pool.control
fails "stop of a pool that is not served" 1 "'pool' is not served" ashlar stop pool
fails "stop of a pool that is not there" 1 "there is no pool at 'nowhere'" ashlar stop nowhere

# A server that was killed leaves its sockets behind; nobody minds.
ok "a server again" serve pool
kill -KILL "$server"
wait "$server" 2>/dev/null
ok "its sockets are still there" test -e pool.nbd -a -e pool.control
works "a verb does not mind a dead server's socket" ashlar list pool
works "nor does a change" ashlar create pool after 1M
ok "nor does the next server" serve pool
works "which answers" ashlar list pool

# One that does not answer.
kill -STOP "$server"
fails "a silent server" 1 "(process $server) has not answered for 1 seconds; if it hangs: kill -9 $server" ashlar list pool --timeout 1
kill -CONT "$server"
works "it answers again" ashlar list pool

# Signals.
for signal in TERM INT HUP; do
    kill -$signal "$server"
    ended "$server"
    ok "SIG$signal ends it well" is_status 0
    ok "its sockets are gone" test ! -e pool.nbd -a ! -e pool.control
    ok "a server again" serve pool
done
works "status --json" ashlar status pool --json
ok "tells the process" json_is 'j["server"]["pid"]' "$server"
ok "and where it listens" json_is 'j["server"]["listening"][0]' "nbd+unix:///?socket=$directory/pool.nbd"
works "stop --json" ashlar stop pool --json
ok "tells the process" json_is '(j["stopped"], j["pid"])' "(True, $server)"

# Addresses.
random_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
port=$(random_port)
ok "TCP and unix" serve pool --nbd "tcp:127.0.0.1:$port" --nbd "unix:$directory/other"
ok "prints the TCP URI" grep -qF "nbd://127.0.0.1:$port/disk" "$serve_log"
ok "no default socket then" test ! -e pool.nbd
if have nbdinfo; then
    ok "a TCP client" test "$(size_of_export "nbd://127.0.0.1:$port/disk")" = $((64 * 1024 * 1024))
    ok "a client of the other socket" test "$(size_of_export "nbd+unix:///disk?socket=$directory/other")" = $((64 * 1024 * 1024))
fi
ashlar create pool2 --size 256M >/dev/null
fails "a port in use" 1 "$port" ashlar serve pool2 --nbd "tcp:127.0.0.1:$port"
ok "leaves no socket" test ! -e pool2.control
fails "a socket in use" 1 "other" ashlar serve pool2 --nbd "unix:$directory/other"
echo precious >notes
fails "a file in the way of a socket" 1 "notes" ashlar serve pool2 --nbd "unix:$directory/notes"
ok "the file is still there" test "$(cat notes)" = precious
fails "a socket in a directory that is not there" 1 "no/socket" ashlar serve pool2 --nbd "unix:$directory/no/socket"
works "and the pool is not harmed" ashlar list pool2
ashlar stop pool >/dev/null

ok "a server of JSON" serve pool --json
python3 -c 'import json, sys; j = json.load(open(sys.argv[1])); print(j["volumes"][0]["name"], j["pid"])' "$serve_log" >"$out"
ok "prints what it serves" test -s "$out"
ashlar stop pool >/dev/null

# Read-only.
ok "a read-only server" serve pool --read-only
if have nbdinfo; then
    ok "its exports are" nbdinfo --is readonly "$uri"
fi
fails "no verb changes anything" 1 "for reading only" ashlar create pool new 1M
works "but looks" ashlar list pool
works "and exports" ashlar export pool disk copy2
ashlar stop pool >/dev/null

# No volumes, no name.
ashlar create single --size 256M >/dev/null
ok "a server without volumes" serve single
ok "says what to do next" grep -qF "no volumes yet; next, in another terminal: ashlar create single NAME 10G" "$serve_log"
ashlar create single only 16M >/dev/null
if have nbdinfo; then
    ok "the empty name is the only volume" test "$(size_of_export "nbd+unix://?socket=$directory/single.nbd")" = $((16 * 1024 * 1024))
fi
ashlar stop single >/dev/null

# As a service manager and others start it.
cat >notify.py <<'PYTHON'
import os, socket, subprocess, sys
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.bind(sys.argv[3])
notify.settimeout(30)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind("activated")
listener.listen(5)
def prepare():
    os.dup2(listener.fileno(), 3)
    os.environ["LISTEN_PID"] = str(os.getpid())
environment = dict(os.environ, NOTIFY_SOCKET=sys.argv[4], LISTEN_FDS="1")
pid = os.fork()
if pid == 0:
    os.dup2(listener.fileno(), 3)
    environment["LISTEN_PID"] = str(os.getpid())
    os.set_inheritable(3, True)
    for fd in (0, 1, 2):
        os.close(fd)
    os.execve(sys.argv[1], [sys.argv[1], "serve", sys.argv[2]], environment)
print(notify.recv(1000).decode().split("\n")[0], flush=True)
greeting = socket.socket(socket.AF_UNIX)
greeting.connect("activated")
print(greeting.recv(8).decode(), flush=True)
greeting.close()
os.kill(pid, 15)
print(notify.recv(1000).decode(), flush=True)
print("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
PYTHON
for name in "$directory/notify" "@$$-ashlar-notify"; do
    rm -f activated
    python3 - "$ASHLAR" pool "$name" "$name" >"$out" 2>"$err" <<PYTHON
import sys
sys.argv[3] = "\0" + sys.argv[3][1:] if sys.argv[3].startswith("@") else sys.argv[3]
exec(open("notify.py").read())
PYTHON
    ok "readiness is told to $([ "${name:0:1}" = @ ] && echo an abstract || echo a) NOTIFY_SOCKET" prints_line READY=1
    ok "the passed socket serves, with all standard descriptors closed" prints_line NBDMAGIC
    ok "the end is told" prints_line STOPPING=1
    ok "and it ends well" prints_line "status 0"
    ok "no default socket was made" test ! -e pool.nbd
done

# One connection on standard input and output.
if [ -n "$python_nbd" ]; then
    run "$python_nbd" -c 'import nbd, sys
h = nbd.NBD()
h.set_export_name("disk")
h.connect_command(sys.argv[1:])
h.pwrite(b"x" * 512, 4096)
h.flush()
print(h.get_size(), h.pread(3, 4096))
h.shutdown()' "$ASHLAR" serve pool --stdio
    ok "--stdio" prints_line "67108864 bytearray(b'xxx')"
    works "is free again at once" ashlar get pool disk users
else
    skip "--stdio" "python3-libnbd is missing"
fi

# Clients that do not take what they asked for are waited for, but not for ever, and not if the user is in a hurry.
stuck_client() {
    rm -f stuck
    "$python_nbd" - "$uri" <<'PYTHON' &
import nbd, sys, time
h = nbd.NBD()
h.connect_uri(sys.argv[1])
h.pwrite(b"kept" * 128, 8192)
buffers = [nbd.Buffer(16 << 20) for _ in range(3)]
for b in buffers:
    h.aio_pread(b, 0)
h.aio_flush()
open("stuck", "w").close()
time.sleep(60)
PYTHON
    client=$!
    eventually test -e stuck
    sleep 0.5
}
seconds_since() {
    echo $(($(date +%s) - $1))
}
if [ -n "$python_nbd" ]; then
    ok "a server with one second of grace" serve pool --grace 1
    ok "a stuck client" stuck_client
    since=$(date +%s)
    works "stop" ashlar stop pool
    ok "took about that" test "$(seconds_since "$since")" -le 5
    ok "it says whom it cut" grep -q "1 connections had requests under way and were cut" "$serve_log"
    kill "$client"
    ok "a server with a minute of grace" serve pool --grace 60
    ok "a stuck client" stuck_client
    since=$(date +%s)
    kill -TERM "$server"
    sleep 1
    ok "the server waits" kill -0 "$server"
    kill -TERM "$server"
    ended "$server"
    ok "a second signal ends it" test "$(seconds_since "$since")" -le 6
    ok "well" is_status 0
    kill "$client"
    works "what was acknowledged is there" ashlar export pool disk kept
    ok "whole" test "$(dd if=kept bs=512 skip=16 count=1 2>/dev/null | head -c 8)" = keptkept
    works "check finds nothing wrong" ashlar check pool
else
    skip "clients that are stuck" "python3-libnbd is missing"
fi
finish
