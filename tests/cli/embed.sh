#!/bin/bash
# libashlar from outside: the example program built as C11 and as C++, against the shared and the static library; what the
# libraries export; and what pkg-config says.
# shellcheck disable=SC1091,SC2154,SC2317  # lib.sh is beside this file and sets what is used here
. "$(dirname "$0")/lib.sh"

for program in $HELLO; do
    name=$(basename "$program")
    rm -f pool
    works "$name" "$program" pool
    ok "$name waits" prints_line "waiting: hello, world"
    ok "$name submits" prints_line "submitted: hello, world"
    ok "$name says nothing else" test "$(wc -l <"$out")" -eq 2 -a ! -s "$err"
    run "$program" pool
    ok "$name fails where a pool is" is_status 1
    ok "$name says why" grep -q "^hello: .*exists" "$err"
    works "$name: the command finds the volume" ashlar get pool disk size
    ok "$name: of 1G" prints_line 1G
done
ok "at least two programs were run" test "$points" -ge 16

declared=$(grep -o '\bashlar_[a-z_]*(' "$HEADER" | tr -d '(' | sort -u)
exported() {
    nm "$@" | awk '$2 ~ /^[TDBRVWi]$/ { sub(/@.*/, "", $3); print $3 }' | grep -vE '^(ASHLAR_|_init|_fini|_edata|_end|__bss_start|__asan_|__odr_asan|__ubsan|__tsan|\.)' | sort -u
}
if have nm; then
    ok "the header declares at least 45 calls" test "$(echo "$declared" | wc -l)" -ge 45
    exported -D --defined-only "$SHARED" >shared
    ok "the shared library exports them and nothing else" diff <(echo "$declared") shared
    ok "with a version" grep -q '@@ASHLAR_0.1' <(nm -D "$SHARED")
    exported -g --defined-only "$STATIC" >static
    ok "the static library too" diff <(echo "$declared") static
else
    skip "exports" "nm is missing"
fi

if have gcc && have g++; then
    works "the header alone, C11, pedantic" gcc -std=c11 -Wall -Wextra -pedantic -Werror -fsyntax-only -x c "$HEADER"
    works "the header alone, C++11" g++ -std=c++11 -Wall -Wextra -pedantic -Werror -fsyntax-only -x c++ "$HEADER"
else
    skip "the header alone" "gcc or g++ is missing"
fi
ok "pkg-config names the library" grep -q -- "^Libs: .*-lashlar" "$PKGCONFIG"
ok "and what a static one needs" grep -q -- "^Libs.private: .*-lzstd" "$PKGCONFIG"
finish
