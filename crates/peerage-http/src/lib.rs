//! Listeners, TLS with reload, HTTP/1.1 and HTTP/2, and sending one request to one upstream.
