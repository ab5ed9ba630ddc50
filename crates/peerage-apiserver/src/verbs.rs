//! The verbs, one file each; every one is generic over the resource.

mod create;
mod delete;
mod delete_collection;
mod get;
mod list;
mod patch;
pub(crate) mod reviews;
mod scale;
mod update;
mod watch;

use http::Method;
use peerage_core::Status;
use peerage_http::{Body, Response};

use crate::call::Call;
use crate::error::ApiError;
use crate::write::Change;

/// Answers a request whose path and method have been found to be served.
pub(crate) async fn dispatch(call: Call, body: Body) -> Result<Response, ApiError> {
    match call.info.subresource() {
        "" => main(call, body).await,
        "status" => part(call, body, Change::Status).await,
        "finalize" => part(call, body, Change::Part).await,
        "scale" => scale::scale(call, body).await,
        _ => Err(later(&call).await),
    }
}

async fn main(call: Call, body: Body) -> Result<Response, ApiError> {
    if call.served.place.is_none() {
        return match call.info.verb() {
            "create" => reviews::create(call, body).await,
            // Nothing of the kind is kept (`componentstatuses`).
            _ => Err(ApiError::unknown_path()),
        };
    }
    match call.info.verb() {
        "get" => get::get(&call).await,
        "list" => list::list(&call).await,
        "watch" => watch::watch(call).await,
        "create" => create::create(&call, body).await,
        "update" => update::update(&call, body, Change::Main).await,
        "patch" => patch::patch(&call, body, Change::Main).await,
        "delete" => delete::delete(&call, body).await,
        "deletecollection" => delete_collection::delete_collection(&call, body).await,
        _ => Err(Status::method_not_allowed().into()),
    }
}

/// A subresource that is a part of the object itself.
async fn part(call: Call, body: Body, change: Change) -> Result<Response, ApiError> {
    match call.parts.method {
        Method::GET => get::get(&call).await,
        Method::PUT => update::update(&call, body, change).await,
        Method::PATCH => patch::patch(&call, body, change).await,
        _ => Err(Status::method_not_allowed().into()),
    }
}

/// 501 for a subresource whose handler does not exist; 404 where there is not even the object.
async fn later(call: &Call) -> ApiError {
    if let Some(place) = &call.served.place
        && let Err(error) = crate::write::current(call, place, call.info.name()).await
    {
        return error;
    }
    let message = format!(
        "this server does not implement the subresource {}/{}",
        call.info.resource(),
        call.info.subresource()
    );
    Status::generic(501, &message).into()
}
