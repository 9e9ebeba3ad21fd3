# The images of Skein: static programs, on nothing, not root.
#
# No base image is needed and no package manager runs: `make build` makes the programs first, then
# `make docker-build` (or `docker build --target manager .`) copies them in. The trust store for TLS
# connections to model providers is compiled into the manager.

FROM scratch AS sandbox
COPY --chmod=0555 bin/sandbox bin/sandbox-child /
USER 65532:65532
EXPOSE 8443 8080
ENTRYPOINT ["/sandbox"]

# The sandbox whose engine may be v8: the same programs, and Deno with the C library that it is linked with, as
# `make docker-build` lays them out in build/v8 (hack/deno.sh files).
FROM scratch AS sandbox-v8
COPY build/v8/ /
COPY --chmod=0555 bin/sandbox bin/sandbox-child /
USER 65532:65532
EXPOSE 8443 8080
ENTRYPOINT ["/sandbox"]

FROM scratch AS manager
COPY --chmod=0555 bin/manager /manager
USER 65532:65532
EXPOSE 8444 8443 8081
ENTRYPOINT ["/manager"]
