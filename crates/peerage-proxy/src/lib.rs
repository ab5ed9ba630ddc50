//! The Mixed Version Proxy as a tower layer around any local service.
