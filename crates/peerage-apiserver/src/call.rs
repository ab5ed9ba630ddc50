//! One request for a resource that this server serves, as its handler sees it.

use std::sync::Arc;

use http::request::Parts;
use peerage_auth::AuditContext;
use peerage_catalogue::Resource;
use peerage_core::media::ResourceAccept;
use peerage_core::{GroupResource, Query, RequestInfo, Status, User};
use peerage_objects::selector::{FieldTerm, LabelSelector};
use peerage_store::StoreError;

use crate::api::Api;
use crate::cache::{CacheError, CachedObject};
use crate::error::{self, ApiError};
use crate::list_options::ListOptions;
use crate::resources::{Place, Served};
use crate::respond::Respond;
use crate::warnings::Warnings;

/// One request.
pub(crate) struct Call {
    api: Arc<Api>,
    pub(crate) served: Arc<Served>,
    pub(crate) info: Arc<RequestInfo<'static>>,
    pub(crate) user: Arc<User>,
    pub(crate) parts: Parts,
    pub(crate) warnings: Warnings,
    pub(crate) accept: ResourceAccept,
    respond: Respond,
}

/// Which objects a list, watch or deletecollection is about: made once for a request, asked for each object.
pub(crate) struct Selection {
    /// What the names of the objects begin with: `namespace/`, or nothing.
    prefix: String,
    labels: LabelSelector,
    /// The terms of the field selector, each with where an object keeps the field.
    fields: Vec<(Field, FieldTerm)>,
    /// The one name in the path of a watch or list of a single object (`/watch/…/NAME`); empty for all.
    name: String,
}

#[derive(Debug, Clone, Copy)]
enum Field {
    Name,
    Namespace,
    /// Place among the kind's own selectable fields.
    Own(usize),
}

impl Call {
    pub(crate) fn new(
        api: Arc<Api>,
        served: Arc<Served>,
        info: Arc<RequestInfo<'static>>,
        user: Arc<User>,
        parts: Parts,
        accept: ResourceAccept,
    ) -> Self {
        let respond = Respond::new(&accept, &parts.headers, &info.query());
        let respond = respond.recorded(parts.extensions.get());
        Self {
            api,
            served,
            info,
            user,
            parts,
            warnings: Warnings::default(),
            accept,
            respond,
        }
    }

    /// The request's audit event, if one is written.
    pub(crate) fn audit(&self) -> Option<&AuditContext> {
        self.parts.extensions.get()
    }

    pub(crate) fn api(&self) -> &Arc<Api> {
        &self.api
    }

    pub(crate) fn resource(&self) -> &Arc<Resource> {
        &self.served.resource
    }

    pub(crate) fn query(&self) -> Query<'_> {
        self.info.query()
    }

    pub(crate) fn respond(&self) -> &Respond {
        &self.respond
    }

    /// Where the objects are; 405 for what is never stored.
    pub(crate) fn place(&self) -> Result<&Place, ApiError> {
        self.served
            .place
            .as_ref()
            .ok_or_else(|| Status::method_not_allowed().into())
    }

    pub(crate) fn group_resource(&self) -> GroupResource<'_> {
        error::group_resource(&self.served.resource)
    }

    /// 404 for the object of this request.
    pub(crate) fn not_found(&self) -> ApiError {
        ApiError::not_found(self.resource(), self.info.name())
    }

    /// What went wrong in the store, as the client is told.
    pub(crate) fn store_error(&self, error: &StoreError) -> ApiError {
        error::of_store(error, self.resource(), self.info.verb())
    }

    /// What the names of the wanted objects begin with: `namespace/`, or nothing.
    pub(crate) fn prefix(&self) -> String {
        match (self.resource().namespaced, self.info.namespace()) {
            (true, namespace) if !namespace.is_empty() => format!("{namespace}/"),
            _ => String::new(),
        }
    }

    /// The object's name within its kind.
    pub(crate) fn name_of(&self, name: &str) -> String {
        self.prefix() + name
    }

    /// Waits until the cache holds everything that was acknowledged before.
    pub(crate) async fn fresh(&self) -> Result<(), ApiError> {
        match self.api.cache.fresh().await {
            Ok(_) => Ok(()),
            Err(CacheError::Store(error)) => Err(self.store_error(&error)),
            Err(error) => Err(ApiError::unavailable(error.to_string())),
        }
    }

    /// What the options select. Checks the field selector against what the kind can be selected by.
    pub(crate) fn selection(&self, options: &ListOptions) -> Result<Selection, ApiError> {
        let own = &self.resource().rules.field_selectors;
        let find = |term: &FieldTerm| match term.field.as_str() {
            "metadata.name" => Ok(Field::Name),
            "metadata.namespace" => Ok(Field::Namespace),
            other => own
                .iter()
                .position(|f| *f.label == *other)
                .map(Field::Own)
                .ok_or_else(|| self.unknown_field(other)),
        };
        let terms = options.fields.terms().iter();
        let fields = terms.map(|term| Ok((find(term)?, term.clone())));
        Ok(Selection {
            prefix: self.prefix(),
            labels: options.labels.clone(),
            fields: fields.collect::<Result<_, ApiError>>()?,
            name: self.info.name().to_owned(),
        })
    }

    fn unknown_field(&self, field: &str) -> ApiError {
        let resource = self.resource();
        ApiError::bad_request(resource.rules.selector_error_text(field, &resource.kind))
    }
}

impl Selection {
    /// Whether it selects everything below its prefix.
    pub(crate) fn is_everything(&self) -> bool {
        self.name.is_empty() && self.fields.is_empty() && self.labels.is_everything()
    }

    /// Whether it selects the object.
    pub(crate) fn matches(&self, object: &CachedObject) -> bool {
        let fits = |(field, term): &(Field, FieldTerm)| {
            let value = match *field {
                Field::Name => object.own_name(),
                Field::Namespace => object.namespace(),
                Field::Own(at) => object.fields.get(at).map_or("", |v| v),
            };
            (value == term.value) != term.negated
        };
        // What cannot be read may be selected: it must not be left out in silence.
        let unread = object.unreadable().is_some();
        let named = |(field, _): &&(Field, FieldTerm)| !unread || !matches!(field, Field::Own(_));
        object.name.starts_with(&self.prefix)
            && (self.name.is_empty() || self.name == object.own_name())
            && self.fields.iter().filter(named).all(fits)
            && (unread || self.labels.matches(object))
    }
}
