//! POST to a collection.

use http::StatusCode;
use peerage_core::Status;
use peerage_http::{Body, Response};
use peerage_objects::meta::{self, Meta};
use serde_json::json;

use crate::call::Call;
use crate::error::ApiError;
use crate::render;
use crate::write::{self, WriteOptions, before_create, body};

/// Times that a generated name is drawn again when it is taken. Kubernetes: seven retries.
const NAME_TRIES: usize = 8;

/// Creates an object.
pub(crate) async fn create(call: &Call, request: Body) -> Result<Response, ApiError> {
    let options = WriteOptions::parse(&call.query(), "CreateOptions")?;
    let wanted = body::Wanted::of(call.resource());
    let bytes = body::as_json(call, wanted, body::read(call, request).await?)?;
    let mut object = body::object(call, wanted, &bytes, None, options.field_validation)?;
    let generated =
        Meta::of(&object).name().is_empty() && !Meta::of(&object).generate_name().is_empty();
    before_create(
        &call.api().catalogue,
        call.resource(),
        &mut object,
        call.info.namespace(),
        &call.user,
    )
    .map_err(|e| e.status())?;
    for _ in 0..NAME_TRIES {
        match write::create(call, &options, object.clone()).await {
            Ok(committed) => {
                let name = committed.object.own_name();
                if let Some(audit) = call.audit() {
                    audit.refer(|object| object.name = name.to_owned());
                }
                return render::object(call, StatusCode::CREATED, &committed.object);
            }
            Err(error) if generated && error.is_conflict() => {
                let name = meta::generate_name(Meta::of(&object).generate_name(), rand::random());
                meta::meta_mut(&mut object).insert("name".to_owned(), json!(name));
            }
            Err(error) => return Err(error),
        }
    }
    Err(Status::generated_name_exists(call.group_resource(), Meta::of(&object).name(), 1).into())
}
