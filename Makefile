# Vibrant: build, test, install. `make` alone prints the targets.
#
# Three builds of one API: pure Go (no C compiler), cgo (C kernels with SIMD), and -tags cuda (CUDA kernels as well).
# The first two need nothing but Go and, for the second, gcc; the third needs nvcc (scripts/install-cuda-toolkit.sh
# brings one without root).

GO      ?= go
CC      ?= gcc
PREFIX  ?= /usr/local
DESTDIR ?=
MODEL   ?=
DEVICE  ?= auto
ARGS    ?=
comma   := ,
space   := $() $()
# a pattern of tests by their names without Test
tests    = ^Test($(subst $(space),|,$(strip $(1))))$$

VERSION := $(shell sed -n 's/^#define VB_VERSION_[A-Z]* \([0-9]*\)$$/\1/p' csrc/vibrant.h | paste -sd. -)
CFLAGS  ?= -O3 -g1
VB_CFLAGS := $(CFLAGS) -std=c11 -D_GNU_SOURCE -Wall -Wextra -fPIC -fvisibility=hidden -pthread -ffile-prefix-map=$(CURDIR)=.

HAVE_CC := $(shell command -v $(CC) 2>/dev/null)
# The toolkit: CUDA_HOME or CUDA_PATH, an nvcc on PATH, the usual place, or what scripts/install-cuda-toolkit.sh put into build/.
NVCC    := $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) $(wildcard $(CUDA_PATH)/bin/nvcc) $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc) \
             $(wildcard build/cuda-toolkit/site-packages/nvidia/cu13/bin/nvcc))
GPU     := $(shell nvidia-smi -L 2>/dev/null | head -n 1)
CGO     := $(if $(HAVE_CC),1,0)

# Go links and tests again where a static library has changed, which it cannot see: see cuda/cuda.go.
link_with = -X github.com/vibrant-ml/vibrant/cuda.library=$$(cksum < $(1) | cut -d ' ' -f 1)
LINK_CUDA = $(call link_with,build/cuda/libvibrant_cuda.a)

CSRC    := $(wildcard csrc/*.c)
COUT    ?= build/csrc
COBJ    := $(CSRC:csrc/%.c=$(COUT)/%.o)

.DEFAULT_GOAL := help
.PHONY: help chat build build-cuda lib lib-cuda tmac rtx jetson-orin jetson-nano jetson-xavier test test-go test-library test-cgo \
        test-cuda test-emulated test-c test-asan cuda-map sanitize bench demo-model demo-eval soak gpu-bundle dist deb test-dist install fmt lint debug \
        profile clean c-objects need-go need-cc need-nvcc test-real

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r t d; do printf '  make %-14s %s\n' "$$t" "$$d"; done

# ---- what a target needs, by name and remedy --------------------------------------------------------------------------

need-go:
	@command -v $(GO) >/dev/null || { echo "make: Go is missing: install Go 1.24 or newer (https://go.dev/dl, or your system's package golang)" >&2; exit 1; }

need-cc:
	@command -v $(CC) >/dev/null || { echo "make: $(CC) is missing: install a C compiler (Debian: apt install build-essential; Fedora: dnf install gcc)" >&2; exit 1; }

need-nvcc:
	@test -n "$(NVCC)" || { echo "make: nvcc is missing: install the CUDA Toolkit 13 (https://developer.nvidia.com/cuda-downloads), or run scripts/install-cuda-toolkit.sh, which needs python3 with pip and no root" >&2; exit 1; }

# ---- build -------------------------------------------------------------------------------------------------------------

chat: build ## build, then chat with the embedded model (or MODEL=file.gguf DEVICE=auto|cpu|cuda)
	@bin/vibrant chat $(if $(MODEL),-m "$(MODEL)") --device $(DEVICE) $(ARGS)

build: need-go ## build bin/vibrant: with CUDA where nvcc and a GPU are, else with C kernels, else in pure Go
ifneq ($(and $(NVCC),$(GPU)),)
	@$(MAKE) --no-print-directory build-cuda
else
	@test -n "$(HAVE_CC)" || echo "make: no C compiler ($(CC)): building the slower pure Go kernels (Debian: apt install build-essential)" >&2
	@test -x bin/vibrant || echo "make: building bin/vibrant$(if $(HAVE_CC), and its C kernels), which takes a minute or two the first time"
	CGO_ENABLED=$(CGO) $(GO) build -trimpath -ldflags '-s -w' -o bin/vibrant ./cmd/vibrant
endif

build-cuda: need-go need-cc lib-cuda ## build bin/vibrant with CUDA kernels for CUDA_ARCH (default: the GPU present, else all)
	CGO_ENABLED=1 $(GO) build -tags cuda -trimpath -ldflags "-s -w $(LINK_CUDA)" -o bin/vibrant ./cmd/vibrant

rtx: ## build for RTX 30 and 40 cards (sm_86, sm_89)
	@$(MAKE) --no-print-directory build-cuda CUDA_ARCH="86 89"

jetson-orin: ## build for Jetson Orin (sm_87)
	@$(MAKE) --no-print-directory build-cuda CUDA_ARCH=87

jetson-xavier: ## build for Jetson Xavier (sm_72; needs CUDA 11.4 to 12.x)
	@$(MAKE) --no-print-directory build-cuda CUDA_ARCH=72

jetson-nano: ## build for Jetson Nano (sm_53; needs CUDA 10.2)
	@$(MAKE) --no-print-directory build-cuda CUDA_ARCH=53

lib: need-cc build/lib/libvibrant.a build/lib/libvibrant.so $(if $(NVCC),lib-cuda) ## build the C libraries into build/lib (CUDA ones where nvcc is)
	@$(if $(NVCC),cp build/cuda/libvibrant_cuda.a build/cuda/libvibrant_cuda.so build/lib/,echo "make: no nvcc: libvibrant_cuda was left out (scripts/install-cuda-toolkit.sh brings one)" >&2)

lib-cuda: need-nvcc
	@CUDA_ARCH="$(CUDA_ARCH)" scripts/compile-cuda-kernels.sh

# The libraries for CPUs and for GPUs and the archives have the same objects of csrc. Other flags make them anew.
c-objects: $(COBJ)

COMPILE_C := $(CC) $(VB_CFLAGS)
ifneq ($(shell cat $(COUT)/command 2>/dev/null),$(COMPILE_C))
$(COUT)/command: c-command-changed
endif
.PHONY: c-command-changed
$(COUT)/command:
	@mkdir -p $(@D)
	@echo '$(COMPILE_C)' >$@

$(COUT)/%.o: csrc/%.c $(wildcard csrc/*.h) $(COUT)/command
	$(COMPILE_C) -c $< -o $@

build/lib/libvibrant.a: $(COBJ)
	@mkdir -p $(@D)
	rm -f $@ && $(AR) rcs $@ $^

# For builds of Go that link build/lib/libvibrant.a: without the files that it was made from.
build/lib/overlay.json: $(CSRC)
	@mkdir -p $(@D)
	@echo '{"Replace": {$(subst $(space),$(comma) ,$(CSRC:%="%":""))}}' >$@

build/lib/libvibrant.so: $(COBJ)
	@mkdir -p $(@D)
	$(CC) -shared -Wl,-soname,libvibrant.so.0 -o $@ $^ -lm -ldl -pthread

# EdgeLLM's names over the library, for programs that load them by theirs; it exports these alone.
build/lib/libtmac_kernel_cuda.so: compat/tmac/tmac_kernel_cuda.c compat/tmac/tmac_kernel_cuda.h $(COBJ)
	@mkdir -p $(@D)
	$(CC) $(VB_CFLAGS) -fvisibility=hidden -Icsrc -shared -o $@ $< $(COBJ) -Wl,--version-script=compat/tmac/exports -lm -ldl -pthread

tmac: need-cc build/lib/libtmac_kernel_cuda.so ## build and test libtmac_kernel_cuda.so, which has EdgeLLM's names
	@if command -v python3 >/dev/null; then python3 compat/tmac/test_tmac.py; else echo "make: no python3: libtmac_kernel_cuda.so was not tested" >&2; fi

install: build lib ## install command, man pages, completion, headers, libraries and vibrant.pc below PREFIX (/usr/local)
	install -d "$(DESTDIR)$(PREFIX)/bin" "$(DESTDIR)$(PREFIX)/include" "$(DESTDIR)$(PREFIX)/lib/pkgconfig"
	install -m 755 bin/vibrant "$(DESTDIR)$(PREFIX)/bin/"
	install -m 644 csrc/vibrant.h "$(DESTDIR)$(PREFIX)/include/"
	install -d "$(DESTDIR)$(PREFIX)/share/man/man1" "$(DESTDIR)$(PREFIX)/share/bash-completion/completions" \
	  "$(DESTDIR)$(PREFIX)/share/zsh/site-functions" "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d"
	bin/vibrant docs man "$(DESTDIR)$(PREFIX)/share/man/man1"
	bin/vibrant completion bash > "$(DESTDIR)$(PREFIX)/share/bash-completion/completions/vibrant"
	bin/vibrant completion zsh > "$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_vibrant"
	bin/vibrant completion fish > "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/vibrant.fish"
	install -m 644 build/lib/*.a "$(DESTDIR)$(PREFIX)/lib/"
	install -m 755 build/lib/libvibrant.so "$(DESTDIR)$(PREFIX)/lib/libvibrant.so.0"
	ln -sfn libvibrant.so.0 "$(DESTDIR)$(PREFIX)/lib/libvibrant.so"
	if test -f build/lib/libvibrant_cuda.so; then install -m 755 build/lib/libvibrant_cuda.so "$(DESTDIR)$(PREFIX)/lib/"; fi
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' scripts/vibrant.pc.in > "$(DESTDIR)$(PREFIX)/lib/pkgconfig/vibrant.pc"

dist: need-go ## make reproducible archives for Linux in build/dist (DIST_ARCH="amd64 arm64", DIST_CUDA="none" or roots of toolkits)
	@scripts/make-dist.sh

NFPM := github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.4
deb: dist ## make Debian packages in build/dist as well (fetches nfpm)
	@for arch in $(or $(DIST_ARCH),amd64 arm64); do \
	  SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || echo 0)} DIST_ARCH=$$arch DIST_VERSION=$(VERSION) \
	  DIST_LIBC=$$(readelf -VW build/vibrant-$(VERSION)-linux-$$arch/lib/*.so.0 build/vibrant-$(VERSION)-linux-$$arch/bin/vibrant 2>/dev/null | \
	    sed -n 's/.*Name: GLIBC_\([0-9.]*\).*/\1/p' | sort -V | tail -n 1) $(GO) run $(NFPM) package --config scripts/nfpm.yaml --packager deb --target build/dist || exit 1; done
	@cd build/dist && sha256sum -- *.tar.gz *.json *.deb install.sh >SHA256SUMS

# ---- test --------------------------------------------------------------------------------------------------------------

test: need-go test-go $(if $(HAVE_CC),test-library test-dist test-cgo test-c) $(if $(NVCC),test-cuda) ## run every test this machine can: pure Go, cgo, C, CUDA
	@echo "tested: pure Go$(if $(HAVE_CC),$(comma) a library found at run time$(comma) cgo$(comma) C)$(if $(NVCC),$(comma) CUDA $(if $(GPU),run,linked (no GPU here)))"

# The longest come first, so that none is left alone at the end.
LONGEST_TESTS := ./tensor ./internal/language/engine . ./cmd/vibrant

# go vet checks more than go test does by itself. Operations in pure Go are tested beside those in C where a compiler is, and what takes
# whole models of many formats longest is left to test-cgo, which has it in C. Of other models the fake GPU computes by the same kernels
# in Go as the CPU.
BESIDE_C = ^TestOps$$/^go$$|^Test(ModelsOfEveryFormatCompute|QuantizedPerplexityIsThat|PerplexityOverAQuantizedCache)
BESIDE_FAKE := $(call tests,ASplitQuantizedModelAnswersAsGolden QuantizedCacheAnswersAsGolden SessionsThatGoBackEqualFreshOnes \
  SplitModelsMatchTransformers BitNetMatchesTransformers RandomModelsMatchTransformers)/^go$$
BESIDE_FAKE := $(BESIDE_FAKE)|$(call tests,StagedModelsMatchTransformers OffloadedSessionsEqualWholeOnes)/^cpu$$
test-go: need-go
	CGO_ENABLED=0 $(GO) vet ./...
	CGO_ENABLED=0 $(GO) test -vet=off -timeout 30m $(if $(HAVE_CC),-skip '$(BESIDE_C)|$(BESIDE_FAKE)') $(LONGEST_TESTS) ./...

# Programs without cgo that find libvibrant.so. What differs from test-cgo are the calls, of which short tests make each one; the kernels
# behind them are the same objects' code, and of models those that others computed too. The race detector needs cgo: it watches the
# package that calls the library.
test-library: need-go need-cc
	@$(MAKE) --no-print-directory -j $$(getconf _NPROCESSORS_ONLN) build/lib/libvibrant.so build/lib/libvibrant.a build/lib/overlay.json
	VIBRANT_LIBRARY=$(CURDIR)/build/lib/libvibrant.so CGO_ENABLED=0 $(GO) test -short -vet=off -timeout 30m -skip '/^(go|fake)$$' \
	  ./tensor/... ./internal/backend/dynamic ./gpu/...
	VIBRANT_LIBRARY=$(CURDIR)/build/lib/libvibrant.so CGO_ENABLED=0 $(GO) test -short -vet=off -timeout 30m -skip '/^(go|fake)$$' \
	  -run 'Match(Transformers|Llama2C)$$' ./internal/language/engine
	VIBRANT_LIBRARY=$(CURDIR)/build/lib/libvibrant.so $(RACE) ./internal/backend/dynamic
	$(GO) test -vet=off -timeout 30m -count 1 -skip '/^(pure_Go|cgo)' ./internal/check/downstream

# The archive of this machine's processor is made, with the libraries of two toolkits that compile no kernels, refused where a byte of it
# changed, installed and run.
test-dist: need-go need-cc
	@DIST_ARCH=$$($(GO) env GOHOSTARCH) DIST_CUDA="$$(scripts/stub-toolkits.sh build/dist-stubs)" DIST_CHECK=1 scripts/make-dist.sh
	@scripts/test-install.sh build/dist-checked

# Devices in pure Go, the CPU named go and the fake GPU, are the same in both builds, and slow: test-go tests them, and packages that
# have no C below them but that of mapped files. The race detector watches the fake GPU, whose streams are goroutines, and the CPU in C:
# it sees no C, and so links make's objects. Values are tested above: what would add values alone is left out.
VALUES_ALONE = $(call tests,RowsOfAnySizeMeetNarrowWeights MoreElementsThanAnInt32Counts ForgedBlocksSpoilTheirRowAlone \
  FusedUpdateSwitchedOffIsComposed WindowsMayBeGivenByTheirPeriod MicrosoftsBitNetFilesComputeAlike TernaryWeightsInPlainGraphs \
  ExpertsInOneTensorAreThoseInTwo)
RACE = CGO_ENABLED=1 CGO_LDFLAGS=$(CURDIR)/build/lib/libvibrant.a $(GO) test -overlay build/lib/overlay.json \
  -ldflags "$(call link_with,build/lib/libvibrant.a)" -vet=off -timeout 30m -race
OVER_C = {{if .ForTest}}{{$$p := .ForTest}}{{range .Deps}}{{if eq . "github.com/vibrant-ml/vibrant/csrc"}}{{$$p}}{{end}}{{end}}{{end}}
test-cgo: need-go need-cc
	@$(MAKE) --no-print-directory -j $$(getconf _NPROCESSORS_ONLN) build/lib/libvibrant.a build/lib/overlay.json
	CGO_ENABLED=1 $(GO) vet ./...
	CGO_ENABLED=1 $(GO) test -vet=off -timeout 30m -skip '/^(go|fake)$$' $(LONGEST_TESTS) ./internal/mapped ./internal/language/gguf \
	  ./gguf $$(CGO_ENABLED=1 $(GO) list -test -f '$(OVER_C)' ./... | sort -u)
	$(RACE) -short -skip '/^go$$|$(VALUES_ALONE)' ./tensor/... ./internal/language/engine/... ./gpu/... ./internal/backend/fake/...

test-real: need-go ## hold the trained models in the folders of VIBRANT_REAL_MODELS to exact arithmetic, on the CPU and a GPU
	@[ -n "$$VIBRANT_REAL_MODELS" ] || { echo "make: VIBRANT_REAL_MODELS names no folder with trained models" >&2; exit 1; }
	CI=true CGO_ENABLED=$(if $(HAVE_CC),1,0) $(GO) test -count=1 -v -run 'TestReal' ./internal/language/engine

test-c: need-cc sanitize
	@$(MAKE) --no-print-directory -j $$(getconf _NPROCESSORS_ONLN) build/lib/libvibrant.a build/lib/libvibrant.so
	@$(MAKE) --no-print-directory build/choosers
	@build/choosers
	@build/choosers --map >build/cuda-map.md
	@sed '1,/^<!-- map -->/d; /^<!-- end of map -->/,$$d' cuda/README.md | diff - build/cuda-map.md >&2 || \
	  { echo "make: the map in cuda/README.md is not that of the choosers: run make cuda-map" >&2; exit 1; }
	@mkdir -p build/examples
	@sed -n 's/^[a-z].*[ *]\(vb_[a-z0-9_]*\)(.*/\1/p' csrc/vibrant.h | sort -u > build/declared
	@nm -D --defined-only build/lib/libvibrant.so | awk '{ print $$3 }' | sort -u | diff build/declared - || \
	  { echo "make: libvibrant.so exports (>) other names than vibrant.h declares (<)" >&2; exit 1; }
	@$(MAKE) --no-print-directory tmac
	@for f in examples/c/*.c; do \
	  echo "cc $$f" && $(CC) -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -Icsrc "$$f" build/lib/libvibrant.a -o build/examples/$$(basename "$$f" .c) -lm -pthread -ldl && \
	  build/examples/$$(basename "$$f" .c) || exit 1; done

build/choosers: cuda/chooser_test.c csrc/status.c $(wildcard cuda/*.h cuda/*/*.h cuda/*/*/*.h csrc/*.h)
	@mkdir -p $(@D)
	$(CC) -std=c99 -O1 -Wall -Wextra -Werror -Icuda -Icsrc cuda/chooser_test.c csrc/status.c -o $@

cuda-map: need-cc build/choosers ## write the map of kernels into cuda/README.md
	@build/choosers --map >build/cuda-map.md
	@sed -i -e '/^<!-- map -->/r build/cuda-map.md' -e '/^<!-- map -->/,/^<!-- end of map -->/{/^<!-- /!d}' cuda/README.md

# Without optimization to speak of: what is watched is memory and arithmetic, and the processor's own plain kernels too.
# Checks are calls, which compile in two thirds of the time of checks in place.
CHECKS_AS_CALLS := --param asan-instrumentation-with-call-threshold=0
SANITIZE := -O1 -g1 $(CHECKS_AS_CALLS) -fsanitize=address,undefined -fno-sanitize-recover=all -std=c11 -D_GNU_SOURCE -Icsrc -pthread -fPIC -fvisibility=hidden

build/sanitize/%.o: csrc/%.c $(wildcard csrc/*.h)
	@mkdir -p $(@D)
	@$(CC) $(SANITIZE) -c $< -o $@

build/sanitize/%: examples/c/%.c $(CSRC:csrc/%.c=build/sanitize/%.o)
	@$(CC) $(SANITIZE) $^ -o $@ -lm -ldl

sanitize: need-cc ## run the C examples, which test odd arguments too, under AddressSanitizer and UBSan
	@$(MAKE) --no-print-directory -j $$(getconf _NPROCESSORS_ONLN) $(patsubst examples/c/%.c,build/sanitize/%,$(wildcard examples/c/*.c))
	@for f in $(patsubst examples/c/%.c,build/sanitize/%,$(wildcard examples/c/*.c)); do \
	  for simd in plain avx2 avx512 amx; do echo "$$f ($$simd)" && VIBRANT_SIMD=$$simd $$f || exit 1; done; done

build/sanitize/libvibrant.so: $(CSRC:csrc/%.c=build/sanitize/%.o)
	@$(CC) $(SANITIZE) -shared -o $@ $^ -lm -ldl

# Programs without cgo find the sanitized library; ASan's own library has to be there before libc.
test-asan: need-go need-cc ## run tests of tensors and models over C kernels under AddressSanitizer and UBSan: RUN=pattern
	@$(MAKE) --no-print-directory -j $$(getconf _NPROCESSORS_ONLN) build/sanitize/libvibrant.so
	VIBRANT_LIBRARY=$(CURDIR)/build/sanitize/libvibrant.so ASAN_OPTIONS=detect_leaks=0 CGO_ENABLED=0 $(GO) test -vet=off -count 1 -timeout 60m \
	  -exec 'env LD_PRELOAD=$(shell $(CC) -print-file-name=libasan.so)' -run '$(if $(RUN),$(value RUN),TestKernels|TestOps$$|Draws|MatchTransformers)' \
	  -skip '/^(go|fake)$$' ./internal/backend/dynamic ./tensor ./internal/language/engine

# go run ./internal/check/soak -h lists what shortens it.
soak: need-go ## fuzz by 1,000,000 executions a target, and run the long forms of the tests (hours; each prints its figures)
	$(GO) run ./internal/check/soak $(ARGS)

# Runs the tests where a GPU is. Elsewhere vet checks the types of all, and the command's are linked: the objects and what calls them are the
# same in each, and the command has every package that calls C.
test-cuda: need-go need-cc lib-cuda
	CGO_ENABLED=1 $(GO) vet -tags cuda ./...
ifneq ($(GPU),)
	CGO_ENABLED=1 $(GO) test -tags cuda -ldflags "$(LINK_CUDA)" ./...
else
	CGO_ENABLED=1 $(GO) test -tags cuda -ldflags "$(LINK_CUDA)" -c -o /dev/null ./cmd/vibrant
	$(GO) test -timeout 30m -count 1 -run 'TestDownstreamModule/cuda_linked' ./internal/check/downstream
endif

# Without a GPU: internal/check/emulator, whose own tests come first. With EMULATED=too the objects of build/cuda are tested, which are
# compiled again where they were not made with EMULATED=too and the same CUDA_ARCH (90 where it is not stated).
EMULATED ?= only
EMULATED_OUT = $(if $(filter too,$(EMULATED)),build/cuda,build/emulated/$(or $(CUDA_ARCH),90))
EMULATOR_OBJECTS = $(patsubst internal/check/emulator/%,$(EMULATED_OUT)/internal_check_emulator_%.o,$(wildcard internal/check/emulator/*.cpp))
EMULATED_TEST = VIBRANT_LIBRARY=$(CURDIR)/$(EMULATED_OUT)/libvibrant_emulated.so CGO_ENABLED=0 $(GO) test -vet=off -count 1 -timeout 60m
test-emulated: need-go need-cc need-nvcc ## run the CUDA kernels on an emulated GPU: CUDA_ARCH=90, RUN=pattern of tests of ./tensor
	@EMULATED=$(EMULATED) CUDA_ARCH="$(or $(CUDA_ARCH),90)" scripts/compile-cuda-kernels.sh
	@mkdir -p build/emulated
	@$(NVCC) -std=c++17 -O2 --no-compress -gencode arch=compute_90a,code=compute_90a -cudart none internal/check/emulator/test/kernels.cu \
	  $(EMULATOR_OBJECTS) -o build/emulated/kernels -lpthread -ldl
	env -u EMULATOR_CAPABILITY -u EMULATOR_CONTINUE build/emulated/kernels
	@g++ -std=c++17 -O1 internal/check/emulator/test/decode.cpp $(EMULATOR_OBJECTS) -o build/emulated/decode -lpthread
	build/emulated/decode $(EMULATED_OUT)/libvibrant_emulated.so
	$(if $(RUN),$(EMULATED_TEST) -run '$(value RUN)' ./tensor,@$(MAKE) --no-print-directory -j $$(getconf _NPROCESSORS_ONLN) emulated-goldens \
	  $(patsubst %,emulated-%,F A-E L MN ^A-FLMN))

# An emulated GPU keeps one core busy: operations run beside each other by their first letters.
emulated-%:
	$(EMULATED_TEST) -run 'TestOps$$/^cuda$$/^[$*]' ./tensor
emulated-goldens:
	$(EMULATED_TEST) -run '^(TestTraceNamesTheKernelOfACall|TestScratchOfAStreamComesFromThePool|TestVariantsMatchTransformers)$$/^cuda$$' ./tensor ./internal/language/engine
	$(EMULATED_TEST) -run '^TestEveryKernelIsTakenByACall$$' ./tensor
	EMULATOR_DEVICES=2 $(EMULATED_TEST) -run '^(TestTwoDevicesInTurn|TestPartsWithoutTheirSumAreForgotten)$$/^cuda$$' ./tensor

gpu-bundle: need-go need-cc lib-cuda ## put test and benchmark binaries, fixtures and a run script into build/gpu-bundle, for a GPU host without Go
	@scripts/make-gpu-bundle.sh

# ---- measure -----------------------------------------------------------------------------------------------------------

bench: build $(if $(and $(NVCC),$(GPU)),lib) ## benchmark operations and the default model here; on a GPU, dense kernels beside PyTorch too
	bin/vibrant bench --ops . --device $(DEVICE) $(ARGS)
	bin/vibrant bench $(if $(MODEL),-m "$(MODEL)") --device $(DEVICE) $(ARGS)
ifneq ($(and $(NVCC),$(GPU)),)
	@if python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then \
	  python3 scripts/bench_dense.py --out build/dense.jsonl; \
	else echo "make: no PyTorch with CUDA: its kernels were left out (python3 -m pip install torch)" >&2; fi
endif

demo-model: ## regenerate the corpus, train and export the embedded model (needs PyTorch and a GPU)
	@scripts/demo_model/build.sh

demo-eval: build ## score the embedded model on its held-out questions
	$(GO) run ./scripts/demo_model/eval

# ---- care --------------------------------------------------------------------------------------------------------------

fmt: need-go ## format the Go code
	gofmt -w $$(git ls-files '*.go')

lint: need-go ## check formatting, line lengths and go.mod, vet every build, warn on C
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "gofmt would change:" >&2; gofmt -l $$(git ls-files '*.go') >&2; exit 1; }
	@! LC_ALL=C grep -nE '^.{121}' $$(git ls-files '*.c' '*.h' '*.cu' '*.cuh') || { echo "make: lines beyond 120 columns" >&2; exit 1; }
	$(GO) mod tidy -diff
	$(if $(HAVE_CC),CGO_ENABLED=1 $(GO) vet ./...)
	CGO_ENABLED=0 $(GO) vet ./...
	$(if $(HAVE_CC),$(CC) -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wshadow -Wpointer-arith -Werror -fsyntax-only $(CSRC))

debug: need-go ## build bin/vibrant without optimization, with symbols (C too, and CUDA kernels where nvcc is)
ifneq ($(and $(NVCC),$(HAVE_CC)),)
	@CUDA_ARCH="$(CUDA_ARCH)" DEBUG=1 scripts/compile-cuda-kernels.sh
	CGO_ENABLED=1 CGO_CFLAGS="-O0 -g3" $(GO) build -tags cuda,debug -gcflags 'all=-N -l' -ldflags "$(LINK_CUDA)" -o bin/vibrant ./cmd/vibrant
else
	CGO_ENABLED=$(CGO) CGO_CFLAGS="-O0 -g3" $(GO) build -tags debug -gcflags 'all=-N -l' -o bin/vibrant ./cmd/vibrant
endif

profile: need-go need-cc need-nvcc ## build with line information for Nsight Compute
	@CUDA_ARCH="$(CUDA_ARCH)" PROFILE=1 scripts/compile-cuda-kernels.sh
	CGO_ENABLED=1 $(GO) build -tags cuda -ldflags "$(LINK_CUDA)" -o bin/vibrant ./cmd/vibrant

clean: ## remove what was built (an installed toolkit stays)
	rm -rf bin build/dist* build/vibrant-* build/csrc build/sanitize build/declared build/lib build/cuda build/emulated build/choosers \
	  build/cuda-map.md build/examples build/gpu-bundle
