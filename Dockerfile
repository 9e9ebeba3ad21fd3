# The images of Skein: one static program each, on nothing, not root.
#
# No base image is needed and no package manager runs: `make build` makes the programs first, then
# `make docker-build` (or `docker build --target manager .`) copies them in. The trust store for TLS
# connections to model providers is compiled into the manager.

FROM scratch AS sandbox
COPY --chmod=0555 bin/sandbox /sandbox
USER 65532:65532
EXPOSE 8443 8080
ENTRYPOINT ["/sandbox"]

FROM scratch AS manager
COPY --chmod=0555 bin/manager /manager
USER 65532:65532
EXPOSE 8444 8443 8081
ENTRYPOINT ["/manager"]
