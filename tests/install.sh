#!/bin/sh
# install.sh - the installed program works from anywhere, and uninstalling leaves nothing.
# SPDX-License-Identifier: MIT
. tests/shell.inc

program=$dk
stage=$work/stage
make_it() { env -u MAKEFLAGS -u MAKELEVEL make -s --no-print-directory -C "$root" "$@" B="$(dirname "$(dirname "$work")")" BIN="$program" DESTDIR="$stage"; }
run make_it install
check 'make install' test "$status" = 0
[ "$status" = 0 ] || cat "$err"
installed=$stage/usr/local

for file in bin/darkroom lib/libdarkroom.a lib/libdarkroom.so lib/libdarkroom.so.0 include/darkroom.h include/scheduler.h \
    include/darkroom/common.h share/doc/darkroom/LICENSE \
    lib/pkgconfig/darkroom.pc share/man/man1/darkroom.1 share/bash-completion/completions/darkroom \
    share/zsh/site-functions/_darkroom share/fish/vendor_completions.d/darkroom.fish \
    share/darkroom/models/emoji/unet/config.json share/darkroom/models/clip/merges.bin; do
    check "$file" test -s "$installed/$file"
done
check 'nothing that only training needs' test ! -e "$installed/share/darkroom/models/train"

# From another folder, without help from the environment, the model is found and makes the same picture.
mkdir elsewhere
cd elsewhere || exit 1
unset DARKROOM_MODELS
ends 0 '' "$installed/bin/darkroom" models
prints 'share/darkroom/models/emoji'
ends 0 '' "$installed/bin/darkroom" dog --seed 1 --steps 1 -o installed.png
ends 0 '' env DARKROOM_MODELS="$root/models" "$program" dog --seed 1 --steps 1 -o built.png
same installed.png built.png
cd ..

# A program of somebody else, built with what pkg-config says.
cat >user.c <<'END'
#include <darkroom.h>
#include <scheduler.h>
#include <stdio.h>
int main(void)
{
    printf("%zu schedulers, %s\n", dk_scheduler_count(), dk_cpu_level());
    return 0;
}
END
PKG_CONFIG_PATH=$installed/lib/pkgconfig
export PKG_CONFIG_PATH
flags() { PKG_CONFIG_SYSROOT_DIR=$stage pkg-config "$@" darkroom; }
check 'the version' test "$(flags --modversion)" = "$("$program" --version | cut -d' ' -f2)"
if grep -q __asan_init "$installed/lib/libdarkroom.so"; then
    echo "install: built with a sanitizer: programs are not linked against the libraries"
    skipped=$((skipped + 1))
else
    # shellcheck disable=SC2046
    check 'links with the shared library' ${CC:-cc} -std=c11 user.c -o shared $(flags --cflags --libs)
    check 'which is found by its soname' sh -c "LD_LIBRARY_PATH='$installed/lib' ./shared | grep -q '[1-9].* schedulers'"
    # shellcheck disable=SC2046
    check 'links with the static library' ${CC:-cc} -std=c11 user.c -o static $(flags --cflags) \
        "$installed/lib/libdarkroom.a" $(pkg-config --libs libpng jansson) -lutf8proc -fopenmp -ldl -lm
    check 'and runs' sh -c "./static | grep -q '[1-9].* schedulers'"
    check 'only dk_ names are exported' test -z "$(nm -D --defined-only "$installed/lib/libdarkroom.so" | grep -v ' dk_')"
fi
# So is a scheduler, with no more than what is installed.
check 'a plugin is built' ${CC:-cc} -std=c11 -O1 -fPIC -shared -Wl,-Bsymbolic -DDK_PLUGIN -I"$installed/include" \
    -I"$installed/include/darkroom" -o ralston.so "$root/samples/schedulers/ralston.c" -lm
ends 0 '' "$installed/bin/darkroom" dog --seed 1 --steps 1 --scheduler ./ralston.so --dry-run
check 'a C++ compiler takes the header' sh -c "command -v c++ >/dev/null || exit 0; echo '#include <darkroom.h>' |
    c++ -x c++ -fsyntax-only -I'$installed/include' -"

run make_it uninstall
check 'make uninstall' test "$status" = 0
check 'no file is left' test -z "$(find "$stage" -type f -o -type l)"
check 'nor a folder of its own' test -z "$(find "$stage" -name darkroom)"

finish
