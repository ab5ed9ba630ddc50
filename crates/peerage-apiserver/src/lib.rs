//! A Kubernetes-compatible API server, generic over the catalogue.
