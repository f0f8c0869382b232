#!/bin/bash
# What takes over a second says on a terminal how far it is, clears that line again, and says nothing where standard
# error is no terminal.
# shellcheck disable=SC1091,SC2154,SC2317  # lib.sh is beside this file and sets what is used here
. "$(dirname "$0")/lib.sh"

if ! have script; then
    skip "progress" "there is no script(1) to make a terminal with"
    finish
fi

# on_terminal COMMAND: runs it with a terminal for its standard error; $out has what was shown there. (A shell between:
# script(1) would stop with a child of its own that is held up.)
on_terminal() {
    script -qefc "$*; exit \$?" "$out" >/dev/null 2>"$err" </dev/null
    # shellcheck disable=SC2034  # is_status looks at it
    status=$?
}

drawn() { # TEXT: a line that was drawn in place
    tr '\r' '\n' <"$out" | grep -qE "^$1"
}

cleared() {
    tail -c 200 "$out" | grep -q $'\r\033\\[K'
}

# The pool's file is open in one of our processes: it is at work.
at_work() {
    local fd
    worker=$(pgrep -n -f "^$ASHLAR $1 pool") || return 1
    for fd in "/proc/$worker/fd/"*; do
        [ "$(readlink "$fd")" != "$directory/pool" ] || return 0
    done
    return 1
}

# held VERB: holds the process up, once it is at work, for longer than it takes until something is shown.
held() {
    eventually at_work "$1" && kill -STOP "$worker" && sleep 1.3 && kill -CONT "$worker"
}

slowly() {
    head -c 1000000 input
    sleep 1.5
    cat input
}

export ASHLAR
ashlar create pool --size 1G >/dev/null
random_file input 200000000
mkfifo slow

slowly >slow &
on_terminal "$ASHLAR" import pool disk - "<" slow
ok "import: status 0" is_status 0
ok "import: shows what was read" drawn 'import disk  [0-9.]+[KMG]?, [0-9.]+[KMG]?/s'
ok "import: the line is cleared" cleared
wait $!

slowly >slow &
run bash -c '"$ASHLAR" import pool disk2 - <slow'
ok "import: nothing on a standard error that is no terminal" test ! -s "$err"
wait $!

# A check may be over before it could be held up: then once more.
shown=1
for _ in 1 2 3 4 5 6 7 8; do
    held check &
    on_terminal "$ASHLAR" check pool
    wait $!
    drawn 'check pool( +[0-9]+% \[#* *\] [0-9.]+[KMG]? of [0-9.]+[KMG]?, [0-9.]+[KMG]?/s|  [0-9.]+[KMG]?, [0-9.]+[KMG]?/s|  [0-9]+ s)' && shown=0 && break
done
ok "check: shows how far it is" test $shown -eq 0
ok "check: status 0" is_status 0
ok "check: the line is cleared before the report" grep -qz $'\r\033\\[Klabel ' "$out"
ok "check: the report is whole" grep -q '^clean' "$out"
held check &
run ashlar check pool
wait $!
ok "check: nothing on a standard error that is no terminal" test ! -s "$err"

# A server that lets one wait.
serve pool
kill -STOP "$server"
(sleep 1.6; kill -CONT "$server") &
on_terminal "$ASHLAR" destroy pool disk
ok "destroy: status 0" is_status 0
ok "destroy: shows that time passes" drawn 'destroy disk  [1-9] s'
ok "destroy: the line is cleared" cleared
wait $!
kill -STOP "$server"
(sleep 1.6; kill -CONT "$server") &
run ashlar list pool
ok "list: nothing on a standard error that is no terminal" test ! -s "$err"
wait $!
finish
