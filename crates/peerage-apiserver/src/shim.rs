#![allow(dead_code, missing_docs)]
//! What audit and tables stand in for until their crates bring them.
use peerage_core::{RequestInfo, User};
use peerage_http::{ConnInfo, Response};
use serde_json::Value;
use std::sync::Arc;
#[derive(Clone)]
pub(crate) struct AuditContext;
impl AuditContext {
    pub(crate) fn annotate(&self, _: &str, _: &str) {}
    pub(crate) fn impersonate(&self, _: &Arc<User>) {}
    pub(crate) fn finish(&self, r: Response) -> Response {
        r
    }
}
pub(crate) struct AuditLog;
impl AuditLog {
    pub(crate) fn open(_: &crate::options::Audit) -> std::io::Result<Self> {
        Ok(Self)
    }
    pub(crate) fn begin(
        &self,
        _: &mut http::request::Parts,
        _: &Arc<RequestInfo<'static>>,
        _: &ConnInfo,
        _: &Arc<User>,
    ) -> AuditContext {
        AuditContext
    }
    pub(crate) fn refused(
        &self,
        _: &http::request::Parts,
        _: &Arc<RequestInfo<'static>>,
        _: &ConnInfo,
        _: http::StatusCode,
    ) {
    }
}
pub(crate) fn convert(
    mut v: Value,
    to: &peerage_catalogue::GroupVersionKind,
) -> Result<Value, std::fmt::Error> {
    v["apiVersion"] = to.api_version().into();
    Ok(v)
}
pub(crate) mod table {
    use serde_json::Value;
    pub(crate) fn age(_: &Value, _: i64) -> String {
        "1s".into()
    }
    pub(crate) fn cell(v: Option<&Value>, _: &str) -> Value {
        v.cloned().unwrap_or_else(|| "<none>".into())
    }
}
pub(crate) mod meta {
    use peerage_core::StatusCause;
    use serde_json::Value;
    pub(crate) fn validate_create(
        _: &Value,
        _: bool,
        _: peerage_objects::names::NameRule,
    ) -> Vec<StatusCause> {
        vec![]
    }
    pub(crate) fn validate_update(_: &Value, _: &Value) -> Vec<StatusCause> {
        vec![]
    }
}
