# The image of a replica: one static binary and the certificates of public CAs.
#
#   docker build -t quorate --build-arg VERSION=1.2.3 .
#
# It needs nothing else from a distribution: the time zones are in the binary, there
# is no shell for an intruder, and no package to patch. What it leaves out are the
# programs of command steps. For those, take a base that has them:
#
#   docker build -t quorate --build-arg RUN_IMAGE=debian:bookworm-slim .
ARG BUILD_IMAGE=golang:1.26-bookworm
ARG RUN_IMAGE=scratch

FROM ${BUILD_IMAGE} AS build
ARG GOPROXY
WORKDIR /src
# The modules change more seldom than the code, so they have a layer to themselves.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.release=${VERSION}" -o /quorate ./cmd/quorate

FROM ${RUN_IMAGE}
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /quorate /usr/local/bin/quorate
ARG VERSION=dev
LABEL org.opencontainers.image.title="quorate" \
      org.opencontainers.image.description="Runs every scheduled job once, on any number of replicas" \
      org.opencontainers.image.version="${VERSION}"
# A number, so that Kubernetes can tell that it is not root.
USER 65532:65532
# Where config.toml is looked for. Nothing is ever written here, nor anywhere else.
WORKDIR /etc/quorate
EXPOSE 8080
ENTRYPOINT ["quorate"]
CMD ["serve"]
