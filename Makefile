# Skein. `make help` lists what there is.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Jobs that the Go tools run at once. Two fit a small machine; more need memory too.
JOBS ?= 2
export JOBS

# Images, as the manifests of config/ name them.
IMAGE_MANAGER ?= skein.dev/manager:dev
IMAGE_SANDBOX ?= skein.dev/sandbox:dev
IMAGE_SANDBOX_V8 ?= skein.dev/sandbox-v8:dev

# The dev cluster: its name, and whether it gets a real node (auto: where this machine can).
CLUSTER ?= skein
NODE ?= auto
# What `make deploy` installs: default (data on an emptyDir), persistent (data on a volume claim)
# or postgres (data in PostgreSQL, two replicas; see docs/install.md).
OVERLAY ?= default

DEVCLUSTER := hack/devcluster/devcluster.sh
TESTRUN := build/testrun
REPORTS ?= build/reports

# Without cgo everywhere, so that programs and tests share the build cache. Only the race detector needs cgo.
export CGO_ENABLED := $(if $(RACE),1,0)
# Programs and tests are compiled without debug information, which they are linked without anyway, and without the paths of this
# machine, so that two clones share what they compile (docs/adr/0037-cold-builds.md). The same flags everywhere let programs, tests and the
# linter share the build cache. DEBUG=1 keeps both, for a debugger.
ifndef DEBUG
export GOFLAGS := $(strip $(GOFLAGS) -trimpath -gcflags=all=-dwarf=false)
endif
GO_BUILD := go build -p $(JOBS) $(if $(DEBUG),,-ldflags '-s -w')
# Flags of the test tiers: VERBOSE=1 prints all output, FILTER is a Ginkgo label filter, PKG narrows the
# packages (PKG=./internal/store/...), RACE=1 uses the race detector.
FILTER ?=
PKG ?=
# A file that selects what gets a second try (testrun writes it).
ONLY ?=
# LATE=500 makes goroutines, reads, writes and closes late by up to 500 ms now and then (hack/late): the way to find
# tests that rest on luck. What was built so stays apart in the build cache.
ifdef LATE
export SKEIN_LATE := $(LATE)
export GOFLAGS := $(GOFLAGS) -overlay=$(shell GOFLAGS= SKEIN_LATE= go run ./hack/late build/late)
endif
# How long specs wait for what must happen. Gomega's default of a second is too little for two busy cores;
# waiting longer costs nothing where it does happen.
export GOMEGA_DEFAULT_EVENTUALLY_TIMEOUT ?= 30s
TESTFLAGS = -reports $(REPORTS) $(if $(ONLY),-only '$(ONLY)') $(if $(VERBOSE),-v) $(if $(RACE),-race) $(if $(FILTER),-label-filter '$(FILTER)')

##@ General

.PHONY: help
help: ## Show this help.
	@[ -t 1 ] && colour=1 || colour=0; \
	awk -v colour=$$colour 'BEGIN { FS = ":.*##"; if (colour) { name = "\033[36m"; bold = "\033[1m"; off = "\033[0m" } \
			printf "Usage: make %s<target>%s\n", name, off } \
		/^##@/ { printf "\n%s%s%s\n", bold, substr($$0, 5), off } \
		/^[a-zA-Z0-9_-]+:.*##/ { printf "  %s%-17s%s%s\n", name, $$1, off, $$2 }' $(MAKEFILE_LIST)

##@ Development

.PHONY: generate
generate: ## Generate the deep copies of the custom resources and the orders of the demo.
	@WHAT="deepcopy orders" hack/generate.sh

.PHONY: manifests
manifests: ## Generate the CRDs and the manager's role.
	@WHAT=manifests hack/generate.sh

.PHONY: docs
docs: ## Generate docs/reference/api.md from the CRDs and the code.
	@WHAT=reference hack/generate.sh

.PHONY: fmt
fmt: ## Format the Go code.
	@git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 gofmt -w

.PHONY: vet
vet: ## Run go vet.
	@go vet ./...

.PHONY: lint
lint: ## Run golangci-lint (built once from hack/tools).
	@linter="$$(hack/tool.sh golangci-lint)" && GOGC=$${GOGC:-400} GOMEMLIMIT=$${GOMEMLIMIT:-4GiB} "$$linter" run --concurrency $(JOBS) --allow-serial-runners

.PHONY: verify
verify: ## Fail when a generated file, a go.mod or the formatting has drifted.
	@hack/verify.sh

##@ Build

# What this machine lacks is said before any work begins, once. `make test` has said it already.
.PHONY: prerequisites
prerequisites:
	@$(if $(PREREQUISITES_MET),,NODE=$(NODE) hack/prerequisites.sh $(or $(filter demo test,$(MAKECMDGOALS)),build))

# One go build makes all of them, in the workspace hack/all.work, where the dev cluster's programs are made too: a package that
# several need is compiled once. Programs that are unlike the others are built one by one.
.PHONY: build
ifneq ($(RACE)$(LATE)$(DEBUG),)
build: bin/manager bin/sandbox bin/sandbox-child bin/kubectl-skein
	@ln -sf kubectl-skein bin/kubectl_complete-skein
else
build: prerequisites ## Build the static programs into bin/.
	@$(DEVCLUSTER) build --programs --bin bin
	@ln -sf kubectl-skein bin/kubectl_complete-skein
endif

# Programs and dev cluster, gVisor included, which only tests ask for: all that `make test` builds before it begins.
.PHONY: build-all
ifneq ($(RACE)$(LATE)$(DEBUG),)
build-all: build cluster-build
else
build-all: prerequisites
	@$(DEVCLUSTER) build --gvisor --bin bin >/dev/null
	@ln -sf kubectl-skein bin/kubectl_complete-skein
endif

# Always asked for: the Go tool knows better than make what has changed.
.PHONY: bin/manager bin/sandbox bin/sandbox-child bin/kubectl-skein
bin/manager bin/sandbox bin/sandbox-child bin/kubectl-skein: bin/%: | prerequisites
	@hack/step.sh "Build $@" $(GO_BUILD) -o $@ ./cmd/$*

.PHONY: docker-build
docker-build: bin/manager bin/sandbox bin/sandbox-child ## Build the images with buildah and save them as build/*.tar.
	@hack/image.sh manager $(IMAGE_MANAGER) build/manager.tar
	@hack/image.sh sandbox $(IMAGE_SANDBOX) build/sandbox.tar
# Last, for it needs the npm registry, Debian and x86-64, which the others do not.
	@hack/deno.sh install
	@hack/deno.sh files build/v8
	@hack/image.sh sandbox-v8 $(IMAGE_SANDBOX_V8) build/sandbox-v8.tar

# What krew installs: an archive for each platform, and the manifest that names them.
PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64
VERSION ?=
BASE ?=
.PHONY: krew
krew: ## Build the plugin for several platforms and the manifest for krew [VERSION=v0.1.0 BASE=https://… PLATFORMS=…].
	@VERSION='$(VERSION)' BASE='$(BASE)' PLATFORMS='$(PLATFORMS)' hack/krew.sh

.PHONY: clean
clean: ## Remove what the build made (caches outside the repository stay); not while the demo's manager runs.
	@hack/clean.sh

##@ Test

.PHONY: test
test: ## Everything, in four lanes: outages; conformance; e2e, cluster, v8, verify, lint; unit, integration. Sums it up.
	@hack/test.sh

# How many tests ran and failed is told by testrun, so it is built afresh each time; but not anew under tiers that run it.
.PHONY: $(TESTRUN)
$(TESTRUN):
	@$(if $(PREBUILT),[ -x $@ ] ||) { mkdir -p $(@D); hack/step.sh "Build $@" go build -o $(@D)/.testrun-$$$$ ./hack/testrun && mv -f $(@D)/.testrun-$$$$ $@; }

.PHONY: test-unit
test-unit: $(TESTRUN) ## Packages that need nothing around them.
	@$(SANDBOX_CHILDREN)$(TESTRUN) tier $(TESTFLAGS) -p $(JOBS) -timeout 85m unit $(PKG)

# Where the program sandbox has been built anyway, specs start it, and not themselves, as sandboxes: it starts with an eighth of the work.
SANDBOX_CHILDREN := $(if $(PREBUILT),export SKEIN_TEST_SANDBOX='$(CURDIR)/bin/sandbox'; )

# PREBUILT=1 says that the programs are there already, testrun among them, as `make test` does after it has built them once.
NEEDS := $(TESTRUN) $(if $(PREBUILT),,build-all)

# The TypeScript compiler that checks the types of the API, at the version that hack/typescript pins.
.PHONY: typescript
typescript:
	@hack/tsc.sh install >/dev/null

# The browser that opens the console's page in tests, and the packages that hack/npm/console pins.
.PHONY: chromium
chromium:
	@hack/chromium.sh install
	@hack/npm.sh install console >/dev/null

# PostgreSQL's server programs; the tests start and stop servers of their own.
.PHONY: postgres
postgres:
	@hack/postgres.sh install

.PHONY: test-integration
test-integration: $(NEEDS) postgres chromium ## Packages that need a control plane or PostgreSQL.
	@export KUBEBUILDER_ASSETS="$$($(DEVCLUSTER) env --assets)"; \
	$(TESTRUN) tier $(TESTFLAGS) -p 1 -timeout 85m integration $(PKG)

# Deno, the program of the other engine, of a pinned version.
.PHONY: deno
deno:
	@hack/deno.sh install

.PHONY: test-v8
test-v8: $(NEEDS) deno typescript ## The sandbox's suites and the rows of code once more, on the v8 engine.
	@export SKEIN_TEST_ENGINE=v8 SKEIN_TEST_DENO="$$(hack/deno.sh bin)"; \
	$(TESTRUN) tier $(TESTFLAGS) -p 1 -timeout 85m v8 $(PKG)

# What tests need that is not built here: by itself for `make test`, which runs tiers beside each other.
.PHONY: prefetch
prefetch: postgres deno typescript chromium
	@[ -n "$$(hack/can-node.sh)" ] || hack/need.sh buildah=buildah

.PHONY: conformance
conformance: $(NEEDS) postgres chromium ## The rows of the specification [ROWS="MSG FIL-03"].
	@hack/conformance.sh $(ROWS)

# Its specs alone: `make test` prints the rows once, when e2e has run too.
.PHONY: test-conformance
test-conformance: $(NEEDS) postgres typescript chromium
	@$(TESTRUN) tier $(TESTFLAGS) -p 1 -timeout 85m $(if $(FILTER)$(ONLY),,-label-filter '!outages') conformance $(PKG)

.PHONY: test-outages
test-outages: $(NEEDS) postgres ## Its specs in which managers, databases and networks fail.
	@$(TESTRUN) tier $(TESTFLAGS) -p 1 -timeout 85m $(if $(FILTER)$(ONLY),,-label-filter outages) outages $(PKG)

# Not part of `make test`, which has five minutes of it in its tier outages.
CHAOS ?= 1h
THREADS ?= 500
SEED ?=
.PHONY: chaos
chaos: $(NEEDS) postgres ## Faults of all kinds at once, on three replicas [CHAOS=1h THREADS=500 SEED=…].
	@SKEIN_CHAOS=$(CHAOS) SKEIN_CHAOS_THREADS=$(THREADS) SKEIN_SEED=$(SEED) \
	$(TESTRUN) tier -reports $(REPORTS)/chaos -v -p 1 -timeout 6h -label-filter chaos outages ./test/conformance

# The same, with fewer operations, is part of the tier outages.
TREES ?= 200
STEPS ?= 600
.PHONY: trees
trees: $(NEEDS) postgres ## Random operations on families of threads, with kills and outages [TREES=200 STEPS=600 SEED=…].
	@SKEIN_TREES=$(TREES) SKEIN_TREES_STEPS=$(STEPS) SKEIN_SEED=$(SEED) \
	$(TESTRUN) tier -reports $(REPORTS)/trees -v -p 1 -timeout 5h -label-filter trees outages ./test/conformance

.PHONY: test-e2e
test-e2e: $(NEEDS) ## Real pods on a real node (root on Linux).
	@hack/e2e.sh $(TESTFLAGS) -p 1 -timeout 85m

.PHONY: test-cluster
test-cluster: $(NEEDS) ## The other modules: the dev cluster starts, runs pods and leaves nothing behind; alerts and dashboard parse.
	@$(TESTRUN) tier $(TESTFLAGS) -p 1 -timeout 85m -C hack/devcluster -C hack/devcluster/bootstrap -C hack/monitoring cluster

# Not part of `make test`: it needs Debian's mirrors, and emulates every instruction.
.PHONY: test-arm64
test-arm64: ## Seccomp, limits and runs of code on arm64, in an emulated machine (Debian) [SUITES="supervisor client"].
	@VERBOSE=$(VERBOSE) FILTER='$(FILTER)' hack/arm64/run.sh $(SUITES)

# The seeds and the inputs in testdata/fuzz run as ordinary tests in the tiers of their packages.
.PHONY: fuzz
fuzz: ## Fuzz each target for a while, one after the other [TARGET=FuzzImport TIME=10m].
	@hack/fuzz.sh '$(TARGET)' '$(TIME)' $(JOBS)

# Each bench has a limit of its own; that of all of them is for a bench that ignores its own.
.PHONY: bench
bench: $(NEEDS) ## Print the figures of the budget [FILTER=idle SKEIN_BENCH_IDLE=100000].
ifndef FILTER
	@go test ./internal/engine ./internal/sandbox/js ./internal/sandbox/client ./internal/store/sqlstore ./internal/store/sqlstore/notify \
		-run '^$$' -bench '^Benchmark(Turns|FirstCall|FirstResult|ExecutionCost|Firings|Send)$$' -benchtime 2s
endif
	@$(TESTRUN) tier -reports $(REPORTS) -v $(if $(FILTER),-label-filter '$(FILTER)') -p 1 -timeout 4h bench $(PKG)

# On the cluster of your KUBECONFIG, where the peer is installed. Without PEER it says how.
.PHONY: bench-peers
bench-peers: ## Time another operator as Skein is timed [PEER=skein|acp|agent-sandbox|job N=20 AT=once].
	@KUBECTL='$(KUBECTL)' PEER='$(PEER)' N='$(N)' AT='$(AT)' hack/peers/run.sh

##@ Cluster

.PHONY: cluster-build
cluster-build: ## Build the dev cluster's programs, where they are not in the cache.
	@$(DEVCLUSTER) build --gvisor

.PHONY: cluster-up
cluster-up: ## Start a dev cluster [CLUSTER=name NODE=auto|true|false GVISOR=1].
	@$(DEVCLUSTER) up --name $(CLUSTER) --node=$(NODE) $(if $(GVISOR),--gvisor)

.PHONY: cluster-down
cluster-down: ## Stop it and remove all of it, also after a crash.
	@$(DEVCLUSTER) down --name $(CLUSTER)

.PHONY: cluster-status
cluster-status: ## Say what runs.
	@$(DEVCLUSTER) status --name $(CLUSTER)

##@ Demo

.PHONY: demo
demo: prerequisites ## Play the demo [NODE=auto|true|false MODEL_BASE_URL=… MODEL_API_KEY=… MODEL=…].
	@NODE=$(NODE) hack/demo/run.sh

.PHONY: demo-down
demo-down: ## Remove everything that the demo started.
	@hack/demo/run.sh --down

##@ A fresh machine

# In a clean clone of the last commit, with an empty HOME and empty caches. It needs 40 GB and an hour for both commands.
.PHONY: fresh
fresh: ## Time the README's commands with empty caches [WHAT=demo|test|both AS=root|user|both].
	@WHAT='$(WHAT)' AS='$(if $(filter default,$(origin AS)),,$(AS))' hack/fresh.sh # make itself has an AS: the assembler

.PHONY: fresh-interrupt
fresh-interrupt: ## Interrupt a cold `make demo` at random moments; the next one has to work [TIMES=20 SEED=…].
	@TIMES='$(TIMES)' SEED='$(SEED)' hack/fresh.sh interrupt

.PHONY: fresh-twins
fresh-twins: ## Play the demo in two clones at once.
	@hack/fresh.sh twins

##@ Deploy

# The cluster of your kubeconfig; any kubectl of 1.30 or later, or the dev cluster's own.
KUBECTL ?= $(shell command -v kubectl 2>/dev/null || echo $(DEVCLUSTER) kubectl)

.PHONY: install
install: ## Install the CRDs into the cluster of your kubeconfig.
	@$(KUBECTL) apply --server-side -k config/crd
	@$(KUBECTL) wait --for=condition=Established crd -l app.kubernetes.io/part-of=skein --timeout=60s

.PHONY: uninstall
uninstall: ## Delete the CRDs, and every object of them.
	@$(KUBECTL) delete --ignore-not-found -k config/crd

.PHONY: deploy
deploy: ## Install Skein into the cluster of your kubeconfig [OVERLAY=default|persistent|postgres].
	@$(KUBECTL) apply --server-side -k config/$(OVERLAY)

.PHONY: undeploy
undeploy: uninstall ## Delete Skein from the cluster of your kubeconfig; first every object of its kinds, while the manager still purges them.
	@$(KUBECTL) delete --ignore-not-found -k config/$(OVERLAY)

.PHONY: run
run: bin/manager install ## Run the manager here against the cluster of your kubeconfig, code in local processes [ARGS=--flag=…].
	@bin/manager --sandbox=process --data-dir=build/data --leader-elect=false $(ARGS)
