# Needs Go, make and a shell. Everything else is fetched.

STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: build test lint servers

build: ## bin/quorate
	CGO_ENABLED=0 go build -trimpath -o bin/quorate ./cmd/quorate

test: servers lint ## everything, against real servers; never from a cache
	.ci/modules
	QUORATE_TEST_REQUIRE=1 go test -race -count=1 ./...
	go test -count=1 -v -run 'TestSimulation$$' ./redlock # all of it, which takes too long with -race

lint: ## what needs no server
	@! gofmt -l . | grep . || { echo 'gofmt -w would change these files'; exit 1; }
	go vet -race ./... # -race as the tests have it, so that everything is compiled once
	GOBIN=$(CURDIR)/bin go install $(STATICCHECK)
	GOFLAGS="$$(go env GOFLAGS) -race" bin/staticcheck ./...
	go mod tidy -diff
	.ci/vulnerabilities

servers: ## gets redis, postgres, mariadb and a C compiler where they are missing
	.ci/servers
