module parallelmodel.dev/testcluster/extras/externalsecrets

go 1.26.0

require github.com/external-secrets/external-secrets v0.20.4
