//! Revisioned keys and bytes with watch and leases.
