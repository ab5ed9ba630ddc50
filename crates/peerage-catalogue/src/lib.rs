//! The built-in APIs of each Kubernetes version, as data.
