# darkroom - text to image in C.
#   make           the program ./darkroom and the libraries in build/
#   make demo      installs what is missing, builds, renders samples/first.png
#   make check     installs what is missing, builds, passes all tests
#   make fuzz      libFuzzer on the readers, SECONDS=60 each
#   make check-long  long runs: 1,000 pictures, killed and shared; 200 in one process
#   make debug     the tests under AddressSanitizer and UndefinedBehaviorSanitizer
#   make quality   what doing less work costs in quality, a table of the default model's pictures
#   make bench     speed of kernels and of the default model
#   make plugins   every scheduler as a shared object
#   make install   PREFIX=/usr/local, DESTDIR respected
#   make format    clang-format over the sources

PREFIX  ?= /usr/local
DESTDIR ?=
VERSION := $(shell sed -n 's/^\#define DK_VERSION "\(.*\)"/\1/p' include/darkroom.h)

# B is the build folder and SAN the sanitizer flags: `make debug` calls this file again with others.
B      ?= build
SAN    ?=
OPT    ?= -O3
BIN    ?= darkroom
MACHINE := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))

PKGS     := libpng jansson pangocairo
PKG_CFLAGS = $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_LIBS   = $(shell pkg-config --libs $(PKGS) 2>/dev/null) -lutf8proc

WARN     := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef \
            -Wpointer-arith -Wwrite-strings -Wcast-qual
CPPFLAGS += -D_DEFAULT_SOURCE -D_POSIX_C_SOURCE=200809L -DDK_PREFIX='"$(PREFIX)"'
CFLAGS   ?= -g
BASE_CFLAGS = -std=c11 $(OPT) -fPIC -fopenmp -ffp-contract=off $(WARN) $(SAN) $(CFLAGS)
LDLIBS   = $(PKG_LIBS) -ldl -lm
LDFLAGS  += -fopenmp $(SAN)

# instruction sets of other machines
FOREIGN  := $(if $(filter x86_64 amd64,$(MACHINE)),,src/kernels/avx2.c src/kernels/avx512.c) $(if $(filter aarch64 arm64,$(MACHINE)),,src/kernels/neon.c)
LIB_SRC  := $(filter-out $(FOREIGN),$(sort $(wildcard src/base/*.c src/kernels/*.c src/ops/*.c src/files/*.c src/nets/*.c src/pipeline/*.c)))
SCHED_SRC := $(sort $(wildcard schedulers/*.c))
CLI_SRC  := $(sort $(wildcard src/cli/*.c))
TEST_SRC := $(sort $(wildcard tests/check*.c))
BENCH_SRC := $(sort $(wildcard tests/bench*.c))

# One short line a step; V=1 shows the commands.
say = $(if $(V),,@printf '  %s %s\n' $(1) $@ && )

obj = $(patsubst %.c,$(B)/obj/%.o,$(1))
LIB_OBJ  := $(call obj,$(LIB_SRC) $(SCHED_SRC))
CLI_OBJ  := $(call obj,$(CLI_SRC))
TESTS    := $(patsubst tests/%.c,$(B)/tests/%,$(TEST_SRC))
BENCHES  := $(patsubst tests/%.c,$(B)/tests/%,$(BENCH_SRC))
PLUGINS  := $(patsubst %.c,$(B)/plugins/%.so,$(notdir $(SCHED_SRC) $(wildcard samples/schedulers/*.c)))

all: $(BIN) $(B)/libdarkroom.a $(B)/libdarkroom.so

# gcc's OpenMP goes into the program, so that src/cli/spin.c can set its environment first
STATIC_OPENMP := $(filter /%,$(shell $(CC) -print-file-name=libgomp.a 2>/dev/null))

$(BIN): $(CLI_OBJ) $(B)/libdarkroom.a
	$(call say,LD)$(CC) $(LDFLAGS) -rdynamic -o $@ $(CLI_OBJ) $(B)/libdarkroom.a $(STATIC_OPENMP) $(LDLIBS)

$(B)/libdarkroom.a: $(LIB_OBJ) $(B)/sources.list
	@rm -f $@
	$(call say,AR)$(AR) rcs $@ $(LIB_OBJ)

$(B)/libdarkroom.so: $(LIB_OBJ) $(B)/sources.list $(B)/exports.map
	$(call say,LD)$(CC) $(LDFLAGS) -shared -Wl,-soname,libdarkroom.so.0 -Wl,--version-script=$(B)/exports.map -o $@ $(LIB_OBJ) $(LDLIBS)

$(B)/exports.map:
	@mkdir -p $(@D)
	@printf '{ global: dk_*; local: *; };\n' > $@

# A list of the sources that only changes when a file comes or goes, so that a deletion is noticed too.
$(B)/sources.list: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' $(LIB_SRC) $(SCHED_SRC) | cmp -s - $@ || printf '%s\n' $(LIB_SRC) $(SCHED_SRC) > $@

# The folder is the registry: one line for each file in schedulers/.
$(B)/gen/registry.inc: $(B)/sources.list
	@mkdir -p $(@D)
	@printf 'SCHEDULER(%s)\n' $(subst -,_,$(basename $(notdir $(SCHED_SRC)))) > $@
$(call obj,src/pipeline/registry.c): $(B)/gen/registry.inc

# The install prefix is compiled into the search for models: another PREFIX compiles that file again.
$(B)/prefix: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(PREFIX)' | cmp -s - $@ || printf '%s\n' '$(PREFIX)' > $@
$(call obj,src/pipeline/find.c): $(B)/prefix

ISA_FLAGS =
ifneq ($(filter x86_64 amd64,$(MACHINE)),)
$(B)/obj/src/kernels/avx2.o:   ISA_FLAGS = -mavx2 -mfma -mf16c
$(B)/obj/src/kernels/avx512.o: ISA_FLAGS = -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl
endif

$(B)/obj/src/cli/%.o: src/cli/%.c
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(CPPFLAGS) -Iinclude -Isrc/cli $(PKG_CFLAGS) $(BASE_CFLAGS) -MMD -MP -c -o $@ $<

$(B)/obj/schedulers/%.o: schedulers/%.c
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(CPPFLAGS) -Iinclude -Ischedulers $(BASE_CFLAGS) -MMD -MP -c -o $@ $<

$(B)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(CPPFLAGS) -Iinclude -Isrc -I$(B)/gen $(PKG_CFLAGS) $(BASE_CFLAGS) $(ISA_FLAGS) -MMD -MP -c -o $@ $<

$(B)/tests/%: tests/%.c $(B)/libdarkroom.a
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(CPPFLAGS) -Iinclude -Isrc -Itests $(PKG_CFLAGS) $(BASE_CFLAGS) -MMD -MP -MF $@.d $(LDFLAGS) -rdynamic -o $@ $< \
	    $(TEST_LIBS) $(B)/libdarkroom.a $(LDLIBS)

# The AVX-512 kernels once more, their instructions modelled in plain C; compilers take minutes to optimise that.
$(B)/obj/model512.o: src/kernels/avx512.c
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(CPPFLAGS) -Itests/model512 -Iinclude -Isrc -Dkernels_init_avx512=kernels_init_model512 $(BASE_CFLAGS) -O0 -g0 -MMD -MP -c -o $@ $<
$(B)/tests/checkkernels: $(B)/obj/model512.o
$(B)/tests/checkkernels: private TEST_LIBS = $(B)/obj/model512.o

# The program without main, for the test of its own reader; and --wrap, with which the test makes requests for memory fail.
$(B)/libcli.a: $(filter-out %/main.o,$(CLI_OBJ))
	@rm -f $@
	$(call say,AR)$(AR) rcs $@ $^
$(B)/tests/checkfuzz $(B)/tests/checktruth: $(B)/libcli.a
$(B)/tests/checkfuzz $(B)/tests/checktruth: private TEST_LIBS = $(B)/libcli.a
$(B)/tests/checkfuzz $(B)/tests/checktruth: private CPPFLAGS += -Isrc/cli
$(B)/tests/checkfuzz: private LDFLAGS += -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc

# make fuzz SECONDS=60: libFuzzer on each target of tests/fuzz, with clang; what it finds beside the corpus stays in build/.
SECONDS ?= 60
FUZZ    := $(basename $(notdir $(wildcard tests/fuzz/*.c)))
FUZZ_SAN = -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
fuzz:
	@$(MAKE) --no-print-directory CC=clang B=build/fuzz OPT=-O1 SAN='$(FUZZ_SAN) -fsanitize=fuzzer-no-link' \
	    build/fuzz/libdarkroom.a $(FUZZ:%=build/fuzz/%)
	@for target in $(FUZZ); do \
	    mkdir -p build/fuzz/corpus/$$target && \
	    build/fuzz/$$target -max_total_time=$(SECONDS) -rss_limit_mb=2048 -timeout=60 -print_final_stats=1 \
	        -artifact_prefix=build/fuzz/$$target- build/fuzz/corpus/$$target tests/fuzz/corpus/$$target || exit 1; \
	done
build/fuzz/%: tests/fuzz/%.c $(B)/libcli.a $(B)/libdarkroom.a
	$(call say,CC)$(CC) $(CPPFLAGS) -Iinclude -Isrc -Isrc/cli -Itests/fuzz $(PKG_CFLAGS) $(BASE_CFLAGS) -DFUZZ=$* -MMD -MP -MF $@.d \
	    $(LDFLAGS) -fsanitize=fuzzer -o $@ $< $(B)/libcli.a $(B)/libdarkroom.a $(LDLIBS)

$(B)/plugins/%.so: schedulers/%.c
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(CPPFLAGS) -Iinclude -Ischedulers $(BASE_CFLAGS) -DDK_PLUGIN -MMD -MP -MF $@.d -shared -Wl,-Bsymbolic -o $@ $< -lm
$(B)/plugins/%.so: samples/schedulers/%.c
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(CPPFLAGS) -Iinclude -Ischedulers $(BASE_CFLAGS) -DDK_PLUGIN -MMD -MP -MF $@.d -shared -Wl,-Bsymbolic -o $@ $< -lm

plugins: $(PLUGINS)

setup:
	@.ci/setup

demo: setup
	@$(MAKE) --no-print-directory -j$$(nproc) all
	./darkroom "a rocket on a blue background" --seed 7 --force -o samples/first.png

check: setup
	@$(MAKE) --no-print-directory -j$$(nproc) run-tests

# Tokenizer folders of the test models, written from CLIP's merge table: they are too large to keep twice.
$(B)/clip_table: models/clip/clip_table.c $(B)/libdarkroom.a
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(CPPFLAGS) -Iinclude -Isrc $(PKG_CFLAGS) $(BASE_CFLAGS) -MMD -MP -MF $@.d $(LDFLAGS) -o $@ $< \
	    $(B)/libdarkroom.a $(LDLIBS)

TEST_MODELS := tests/golden/models
TOKENIZERS  := $(patsubst %,$(TEST_MODELS)/%/vocab.json, \
    tiny-sd1/tokenizer tiny-sd2/tokenizer tiny-sdxl/tokenizer tiny-sdxl/tokenizer_2)
$(TEST_MODELS)/tiny-sd1/%:                ENTRIES = 49408
$(TEST_MODELS)/tiny-sd2/% $(TEST_MODELS)/tiny-sdxl/%: ENTRIES = 1000
$(TEST_MODELS)/tiny-sd2/tokenizer/% $(TEST_MODELS)/tiny-sdxl/tokenizer_2/%: PADDING = '!'
$(TOKENIZERS): models/clip/merges.bin | $(B)/clip_table
	@mkdir -p $(@D)
	$(B)/clip_table write $< $(ENTRIES) $(@D) $(PADDING)

run-tests: all plugins $(TESTS) $(TOKENIZERS)
	@tests/run.sh $(B) $(CURDIR)/$(BIN)

# Minutes, not seconds: 1,000 pictures, killed and shared; 200 in one process, memory and time watched.
check-long: setup
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@for t in tests/long/*.sh; do DARKROOM=$(CURDIR)/$(BIN) BUILD=$(B) $$t || exit 1; done

debug: setup
	@ASAN_OPTIONS=detect_leaks=1 LSAN_OPTIONS=suppressions=$(CURDIR)/tests/leaks.supp:print_suppressions=0 \
	    $(MAKE) --no-print-directory -j$$(nproc) run-tests B=build/debug BIN=build/debug/darkroom OPT=-O1 \
	    SAN='-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer'

quality: all
	@DARKROOM=$(CURDIR)/$(BIN) OUT=$(B)/quality tests/quality/less.sh

bench: all $(BENCHES)
	@for b in $(BENCHES); do $$b || exit 1; done

# Everything lies under $(PREFIX), staged under $(DESTDIR).
TO         = $(DESTDIR)$(PREFIX)
SO_VERSION = 0
MODELS    := $(shell find -L $(filter-out models/train,$(wildcard models/*)) -type f ! -name '*.c' ! -name '*.py')

install: all
	install -D -m 755 $(BIN) $(TO)/bin/darkroom
	install -D -m 644 $(B)/libdarkroom.a $(TO)/lib/libdarkroom.a
	install -D -m 755 $(B)/libdarkroom.so $(TO)/lib/libdarkroom.so.$(VERSION)
	ln -sf libdarkroom.so.$(VERSION) $(TO)/lib/libdarkroom.so.$(SO_VERSION)
	ln -sf libdarkroom.so.$(SO_VERSION) $(TO)/lib/libdarkroom.so
	install -D -m 644 include/darkroom.h $(TO)/include/darkroom.h
	install -D -m 644 include/scheduler.h $(TO)/include/scheduler.h
	install -D -m 644 schedulers/common.h $(TO)/include/darkroom/common.h
	@mkdir -p $(TO)/lib/pkgconfig
	printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$${prefix}/lib' 'includedir=$${prefix}/include' '' 'Name: darkroom' \
	    'Description: text to image with diffusion models, on the CPU' 'Version: $(VERSION)' \
	    'Cflags: -I$${includedir}' 'Libs: -L$${libdir} -ldarkroom' 'Requires.private: $(PKGS)' \
	    'Libs.private: -lutf8proc -fopenmp -ldl -lm' > $(TO)/lib/pkgconfig/darkroom.pc
	install -D -m 644 docs/darkroom.1 $(TO)/share/man/man1/darkroom.1
	install -D -m 644 LICENSE $(TO)/share/doc/darkroom/LICENSE
	@mkdir -p $(TO)/share/bash-completion/completions $(TO)/share/zsh/site-functions \
	    $(TO)/share/fish/vendor_completions.d
	$(abspath $(BIN)) completions bash > $(TO)/share/bash-completion/completions/darkroom
	$(abspath $(BIN)) completions zsh > $(TO)/share/zsh/site-functions/_darkroom
	$(abspath $(BIN)) completions fish > $(TO)/share/fish/vendor_completions.d/darkroom.fish
	for f in $(MODELS); do install -D -m 644 $$f $(TO)/share/darkroom/$$f || exit 1; done

uninstall:
	rm -f $(TO)/bin/darkroom $(TO)/lib/libdarkroom.a $(TO)/lib/libdarkroom.so $(TO)/lib/libdarkroom.so.$(SO_VERSION) \
	    $(TO)/lib/libdarkroom.so.$(VERSION) $(TO)/include/darkroom.h $(TO)/include/scheduler.h \
	    $(TO)/include/darkroom/common.h $(TO)/share/doc/darkroom/LICENSE \
	    $(TO)/lib/pkgconfig/darkroom.pc $(TO)/share/man/man1/darkroom.1 \
	    $(TO)/share/bash-completion/completions/darkroom $(TO)/share/zsh/site-functions/_darkroom \
	    $(TO)/share/fish/vendor_completions.d/darkroom.fish
	for f in $(MODELS); do rm -f $(TO)/share/darkroom/$$f; done
	-rmdir $(TO)/include/darkroom $(TO)/share/doc/darkroom 2>/dev/null
	-find $(TO)/share/darkroom -depth -type d -exec rmdir {} + 2>/dev/null

format:
	clang-format -i $(wildcard include/*.h src/*/*.[ch] schedulers/*.[ch] tests/*.[ch] tests/*/*.[ch] samples/schedulers/*.c models/clip/*.c)

clean:
	rm -rf build darkroom

.PHONY: all setup demo check check-long run-tests fuzz debug bench quality plugins format install uninstall clean FORCE
.DELETE_ON_ERROR:

-include $(LIB_OBJ:.o=.d) $(B)/obj/model512.d $(CLI_OBJ:.o=.d) $(TESTS:=.d) $(BENCHES:=.d) $(PLUGINS:=.d) $(B)/clip_table.d
