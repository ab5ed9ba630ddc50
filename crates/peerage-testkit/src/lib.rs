//! Clusters in a test, fake peers, recordings and their replayer.
