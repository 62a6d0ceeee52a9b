# Thin wrappers around Meson; everything is built under build/.
BUILD  ?= build/release
PREFIX ?= /usr/local
MESON  ?= meson
# Debian's loader looks in lib/x86_64-linux-gnu, not in lib64, which Meson takes where dpkg-dev is
# missing. Elsewhere gcc names no such folder, and Meson decides.
LIBDIR ?= $(addprefix lib/,$(shell gcc -print-multiarch 2>/dev/null))
SETUP   = $(MESON) setup --prefix $(PREFIX) $(addprefix --libdir=,$(LIBDIR))

.PHONY: all pawl deps build-deps demo test generate versions interop bench bench-peers bench-compare \
    bench-quick bench-long fuzz fuzz-long asan tsan check picture pictures install uninstall clean help

all: $(BUILD)/build.ninja
	ninja -C $(BUILD)

$(BUILD)/build.ninja:
	$(SETUP) $(BUILD)

# Only the files that are installed: the library, its modules, the command, the manual pages.
INSTALLED = $$($(MESON) introspect $(BUILD) --targets | python3 scripts/lib/installed.py $(BUILD))
pawl: build-deps
	@test -f $(BUILD)/build.ninja || { echo "configuring ..."; \
	    out=$$($(SETUP) $(BUILD) 2>&1) || { echo "$$out"; exit 1; }; }
	@ninja -C $(BUILD) $(INSTALLED)
	@echo "built; next: make install, as root or with sudo"

# The packages that building and testing need, every server among them (apt; elsewhere their names
# are printed); and those that building alone needs.
deps:
	@scripts/deps build test

build-deps:
	@scripts/deps build

# Builds only the tool and the library, in a folder of their own: with fewer packages than `make`,
# and without optimization, so that the first lock is seen soon.
demo:
	@scripts/deps demo
	@test -f build/demo/build.ninja || { echo "configuring ..."; \
	    out=$$($(SETUP) -Doptimization=0 build/demo) || \
	    { echo "$$out"; exit 1; }; }
	@ninja -C build/demo tools/pawl
	@scripts/demo build/demo/tools/pawl

test: deps all
	$(MESON) test -C $(BUILD) --print-errorlogs --num-processes 4

# Random programs on every engine for as long as told, judged, shrunk if they fail (docs/testing.md):
# make generate FOR=30m [ENGINE="redis local"] [SEED=1] [MODE=sequence,free,steered,faults]
FOR    ?= 10m
ENGINE ?= all
generate: deps all
	@PYTHONDONTWRITEBYTECODE=1 python3 tests/generate/generate.py --for $(FOR) --keep build/generate \
	    --exe $(BUILD)/tests/generate/generate $(if $(SEED),--seed $(SEED)) \
	    $(if $(MODE),--mode $(MODE)) $(ENGINE)

# Share locks with the real Redisson, redsync, redlock, redis-py ...; fetches them the first time.
interop:
	@scripts/deps build interop
	@$(MAKE) --no-print-directory -s all >/dev/null
	@interop/setup $(BUILD)
	@interop/run --table docs/interop.md
	@interop/etcd/run

# Conformance on other versions of the servers, which are fetched the first time; an hour or two.
# ONLY=postgres-17 takes one of them, ONLY='redis-*' several.
versions:
	@scripts/deps build test versions
	@$(MAKE) --no-print-directory -s all >/dev/null
	@scripts/versions $(BUILD) $(if $(ONLY),'$(ONLY)')

bench:
	@scripts/deps build bench
	@$(MAKE) --no-print-directory -s all >/dev/null
	@scripts/bench $(BUILD)

# Pawl beside real peers on the same servers; docs/benchmarks.md explains it. The report is
# build/compare/report.html. SERVICE="redis zk" takes some of them; PUBLISH=docs also writes the
# report to docs/benchmark-results.md.
bench-peers:
	@scripts/deps build bench interop
	@$(MAKE) --no-print-directory -s all >/dev/null
	@bench/compare/setup $(BUILD)

bench-compare: bench-peers
	@bench/compare/compare.py $(BUILD) $(if $(PUBLISH),--publish $(PUBLISH)) $(SERVICE)

# The same in small, with the peers that are there already: shows that the harness works.
bench-quick:
	@scripts/deps build bench
	@$(MAKE) --no-print-directory -s all >/dev/null
	@bench/compare/compare.py $(BUILD) --quick $(SERVICE)

# 100,000 locks held for a minute, 10,000 waiters on one name.
bench-long:
	@scripts/deps build bench
	@$(MAKE) --no-print-directory -s all >/dev/null
	@scripts/bench $(BUILD) long

# Each parser for five minutes under libFuzzer; docs/fuzzing.md.
fuzz:
	@scripts/deps build fuzz
	@scripts/fuzz

# Each for an hour, as many at a time as there are cores.
fuzz-long:
	@scripts/deps build fuzz
	@scripts/fuzz -j "$$(nproc)" 3600

# The suite again with the compilers' watchers. TSan leaves out what is about files, signals and
# damaged answers rather than threads.
asan: deps build/asan/build.ninja
	ninja -C build/asan
	$(MESON) test -C build/asan --print-errorlogs --num-processes 4 --timeout-multiplier 4

tsan: deps build/tsan/build.ninja
	ninja -C build/tsan
	$(MESON) test -C build/tsan --print-errorlogs --num-processes 4 --timeout-multiplier 4 \
	    --no-suite tool --no-suite damage --no-suite local --no-suite doctor

build/asan/build.ninja:
	$(SETUP) --buildtype debugoptimized -Db_sanitize=address,undefined -Db_lundef=false build/asan

build/tsan/build.ninja:
	$(SETUP) --buildtype debugoptimized -Db_sanitize=thread -Db_lundef=false build/tsan

# The README's picture, recorded anew.
picture: all
	scripts/picture $(BUILD)/tools/pawl docs/images/contenders.svg

# The pictures of `pawl top` and `pawl serve` in docs/pictures, made by the tests that drive both. The
# locks on the page are used for PICTURE_SECONDS before, so that the plots show something.
PICTURE_SECONDS ?= 600
pictures: deps all
	PAWL_PICTURES=$(CURDIR)/docs/pictures PAWL_PICTURE_SECONDS=$(PICTURE_SECONDS) $(MESON) test \
	    -C $(BUILD) --num-processes 1 --timeout-multiplier 20 --print-errorlogs tool-top serve-page

# House rules that a machine can see.
check:
	@scripts/check

# PREFIX and DESTDIR as usual. What an earlier `make` has built is not touched if it will do, so
# that `make pawl && sudo make install` leaves no files of root in build/.
install:
	@to=$(DESTDIR)$(PREFIX); while [ ! -e "$$to" ]; do to=$$(dirname "$$to"); done; \
	    [ -w "$$to" ] || { echo "make install: no right to write to $$to: use sudo, or choose" \
	    "another folder, for example make install PREFIX=$$HOME/.local" >&2; exit 1; }
	@test -f $(BUILD)/build.ninja || $(SETUP) $(BUILD)
	@$(MESON) introspect $(BUILD) --buildoptions | grep -q '"value": "$(PREFIX)"' || \
	    $(MESON) configure $(BUILD) --prefix $(PREFIX)
	@ninja -n -C $(BUILD) $(INSTALLED) | grep -q 'no work to do' || ninja -C $(BUILD) $(INSTALLED)
	DESTDIR=$(DESTDIR) $(MESON) install -C $(BUILD) --no-rebuild
	@test -n "$(DESTDIR)" || test "$$(id -u)" != 0 || ldconfig

# The files that the last `make install` from this folder wrote.
uninstall:
	ninja -C $(BUILD) uninstall

help:
	@echo "make demo       two contenders for one lock; installs what it needs"
	@echo "make pawl       build the command and the library; installs packages for that"
	@echo "make install    install them (PREFIX, DESTDIR); make uninstall removes them"
	@echo "make            build everything, tests and benchmarks included (make deps: packages)"
	@echo "make test       all tests, on servers that it installs and starts; about 20 minutes"
	@echo "make bench-compare   benchmarks beside other libraries (docs/benchmarks.md)"
	@echo "make generate FOR=30m   random programs on every engine (docs/testing.md)"

clean:
	rm -rf build
