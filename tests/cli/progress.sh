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
