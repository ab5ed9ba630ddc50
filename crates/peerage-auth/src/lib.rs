//! Who is asking: certificates, front-proxy headers and tokens; identity headers in and out; audit sinks.
