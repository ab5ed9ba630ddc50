//! GET of one object, from the cache.

use http::StatusCode;
use peerage_http::Response;

use crate::cache::REACH;
use crate::call::Call;
use crate::error::ApiError;
use crate::list_options::parse_version;
use crate::render;

/// Answers a get. Without a `resourceVersion` the answer holds everything that was acknowledged before.
pub(crate) async fn get(call: &Call) -> Result<Response, ApiError> {
    let place = call.place()?;
    match call.query().first("resourceVersion") {
        None | Some("") => call.fresh().await?,
        Some("0") => {}
        Some(text) => {
            let wanted = parse_version(text).map_err(|e| ApiError::untyped(e.to_string()))?;
            let reached = call.api().cache.reach(wanted, REACH).await;
            reached
                .map_err(|_| ApiError::too_large_version(wanted, call.api().cache.revision()))?;
        }
    }
    let object = place
        .cache
        .get(&call.name_of(call.info.name()))
        .ok_or_else(|| call.not_found())?;
    render::object(call, StatusCode::OK, &object)
}
