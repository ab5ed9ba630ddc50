//! What a Kubernetes object is: metadata, selectors, schemas, patches and tables.
