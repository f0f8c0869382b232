#!/bin/bash
# Helpers of the command line tests. A test is a bash script that sources this file, makes points, and ends with `finish`.
#
#   run CMD...                     runs it; leaves $status, and what it printed in the files $out and $err
#   is_status N, says TEXT, prints TEXT, prints_line TEXT      conditions on the last run (fixed strings)
#   ok NAME CONDITION...           a point: passes if the condition, a command, succeeds
#   fails NAME STATUS TEXT CMD...  a point: CMD exits with STATUS, says TEXT on standard error in one line, and prints nothing
#   serve POOL ARGUMENTS...        starts a server and waits until it is ready; $server is its process
#   to_be_ended PROCESS            a child of the test that is ended with it
#   as_nobody CMD...               runs it as a user who may do nothing special
#
# The program is $ASHLAR. Everything happens in a directory of its own, which goes at the end; servers are ended.
set -u
ASHLAR=${ASHLAR:?the program to test}
directory=$(mktemp -d "${TMPDIR:-/tmp}/ashlar-cli-XXXXXX")
out=$directory/.out
err=$directory/.err
points=0
failures=0
server=
servers=() # "process start": a number alone may be somebody else's once the child is gone
loop=
chmod 755 "$directory"
cd "$directory" || exit 1

# When a process was started, in ticks since the boot; fails if there is none.
start_of() {
    local stat
    { stat=$(<"/proc/$1/stat"); } 2>/dev/null || return 1
    # shellcheck disable=SC2086  # fields: the 22nd, counted from behind the name, which may hold anything
    set -- ${stat##*) }
    echo "${20}"
}

to_be_ended() {
    servers+=("$1 $(start_of "$1")")
}

# A server ends at the second signal at the latest.
clean_up() {
    local process start signal
    for entry in "${servers[@]}"; do
        read -r process start <<<"$entry"
        for signal in CONT TERM TERM; do
            [ -n "$start" ] && [ "$(start_of "$process")" = "$start" ] && kill -$signal "$process" 2>/dev/null
        done
    done
    wait 2>/dev/null
    loop_detach
    cd /
    rm -rf "$directory"
}
trap clean_up EXIT
trap 'exit 1' INT TERM HUP

ashlar() {
    "$ASHLAR" "$@"
}

run() {
    "$@" >"$out" 2>"$err" </dev/null
    status=$?
    return 0
}

is_status() {
    [ "$status" -eq "$1" ]
}

says() {
    grep -qF -- "$1" "$err"
}

prints() {
    grep -qF -- "$1" "$out"
}

prints_line() {
    grep -qxF -- "$1" "$out"
}

# What the last run did, as comments.
show_last() {
    sed 's/^/# out: /' "$out" 2>/dev/null | head -20
    sed 's/^/# err: /' "$err" 2>/dev/null | head -20
    echo "# status: ${status-none}"
}

point() {
    points=$((points + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $points - $2"
    else
        failures=$((failures + 1))
        echo "not ok $points - $2"
    fi
}

ok() {
    local name=$1
    shift
    if "$@"; then
        point 0 "$name"
    else
        point 1 "$name"
        echo "# condition: $*"
        show_last
    fi
}

# Standard error is one line that begins with "ashlar: ".
one_line_error() {
    [ "$(wc -l <"$err")" -eq 1 ] && head -c 8 "$err" | grep -q '^ashlar: '
}

failed_well() {
    is_status "$1" && says "$2" && one_line_error && [ ! -s "$out" ]
}

fails() {
    local name=$1 expected=$2 text=$3
    shift 3
    run "$@"
    ok "$name" failed_well "$expected" "$text"
}

works() {
    local name=$1
    shift
    run "$@"
    ok "$name" is_status 0
}

skip() {
    points=$((points + 1))
    echo "ok $points - $1 # SKIP $2"
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# A file of random bytes: random_file NAME BYTES
random_file() {
    head -c "$2" /dev/urandom >"$1"
}

bytes_of() {
    stat -c %s "$1"
}

# Bytes that the file system holds for a file.
held_bytes() {
    echo $(($(stat -c %b "$1") * 512))
}

# A value of the JSON that the last run printed, by a Python expression on j.
json() {
    python3 -c 'import json, sys; j = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$out" "$1"
}

json_is() {
    [ "$(json "$1")" = "$2" ]
}

# The log address of the first thing in a volume's map for which a Python expression on o holds: address_of POOL VOLUME CONDITION
address_of() {
    "$ASHLAR" dump "$1" volume "$2" --json | python3 -c '
import json, sys
print(next(o["address"] for o in json.load(sys.stdin) if eval(sys.argv[1])))' "$3"
}

# Where on the device a log address lies: place_of POOL ADDRESS
place_of() {
    "$ASHLAR" dump "$1" --json | python3 -c '
import json, sys
objects, address = json.load(sys.stdin), int(sys.argv[1])
size = next(o["segment_bytes"] for o in objects if o["object"] == "label")
print(next(o["device_offset_bytes"] + address % size for o in objects
           if o["object"] == "slot" and o["state"] in ("open", "closed") and o["segment"] == address // size))' "$2"
}

# A block device over a file: $loop. One at a time.
loop_attach() {
    loop_detach
    [ "$(id -u)" -eq 0 ] && have losetup && loop=$(losetup -f --show "$1" 2>/dev/null)
}

loop_detach() {
    [ -z "$loop" ] || losetup -d "$loop"
    loop=
}

serve() {
    local log=$directory/serve.$points.log
    rm -f "$directory/.ready"
    mkfifo "$directory/.ready"
    "$ASHLAR" serve "$@" --ready-fd 9 9>"$directory/.ready" >"$log" 2>&1 </dev/null &
    server=$!
    to_be_ended "$server"
    # shellcheck disable=SC2034  # for the tests
    serve_log=$log
    if ! read -r _ <"$directory/.ready"; then
        sed 's/^/# server: /' "$log"
        return 1
    fi
}

# Waits until a process of ours has ended; sets $status.
ended() {
    wait "$1"
    status=$?
}

# Waits up to 10 seconds for a condition.
eventually() {
    local tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 200 ] || return 1
        sleep 0.05
    done
}

as_nobody() {
    if [ "$(id -u)" -eq 0 ]; then
        setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"
    else
        "$@"
    fi
}

finish() {
    echo "1..$points"
    [ "$failures" -eq 0 ] && [ "$points" -gt 0 ]
    exit
}
