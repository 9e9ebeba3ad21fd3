module github.com/skein-dev/skein/hack/devcluster/bootstrap

go 1.26.0
