//! DELETE of a collection: every object that the list options select, one after another, a few at a time.

use futures::{TryStreamExt as _, stream};
use peerage_http::{Body, Response};

use super::{delete, list};
use crate::call::Call;
use crate::error::ApiError;
use crate::list_options::ListOptions;
use crate::render;
use crate::write::{self, admission};

/// Objects that are deleted at once (`--delete-collection-workers`, whose default is 1 in kube-apiserver).
const WORKERS: usize = 8;

/// Deletes what is selected and answers with the list of what was there.
pub(crate) async fn delete_collection(call: &Call, request: Body) -> Result<Response, ApiError> {
    let options = ListOptions::parse(&call.query(), false)?;
    let deleting = delete::read_options(call, request).await?;
    let page = list::page(call, &options).await?;
    // Either all of them can be judged, or none is deleted.
    for object in &page.objects {
        if let Some(reason) = object.unreadable() {
            return Err(write::unreadable(call, object, reason));
        }
    }
    let names: Vec<String> = page
        .objects
        .iter()
        .map(|o| o.own_name().to_owned())
        .collect();
    for name in &names {
        admission::deletable(call, name)?;
    }
    stream::iter(page.objects.iter().map(Ok))
        .try_for_each_concurrent(WORKERS, |object| async {
            match delete::one(call, &deleting, object.own_name()).await {
                Err(error) if error.code() == 404 => Ok(()),
                other => other.map(|_| ()),
            }
        })
        .await?;
    render::list(call, page)
}
