//! The bodies of errors, byte for byte as kube-apiserver writes them.

#![allow(clippy::unwrap_used)]

use peerage_core::{GroupKind, GroupResource, PlainError, RequestInfo, Status, StatusCause, json};

const PODS: GroupResource<'static> = GroupResource {
    group: "",
    resource: "pods",
};
const DEPLOYMENTS: GroupResource<'static> = GroupResource {
    group: "apps",
    resource: "deployments",
};

fn forbidden(method: &str, target: &str, reason: &str) -> Status {
    Status::forbidden_request("u", &RequestInfo::parse(method, target).unwrap(), reason)
}

/// What a Status says after the head that all failures share.
fn tail(status: &Status) -> String {
    let body = String::from_utf8(json::to_vec(status).unwrap()).unwrap();
    let head = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"#;
    body.strip_prefix(head).unwrap_or(&body).to_owned()
}

#[test]
fn client_errors_read_as_in_kubernetes() {
    for (status, expected) in [
        (
            Status::bad_request("why"),
            r#""why","reason":"BadRequest","code":400}"#,
        ),
        (
            Status::bad_timeout(&peerage_core::duration::parse("zz").unwrap_err()),
            r#""invalid timeout specified in the request URL - time: invalid duration \"zz\"","reason":"BadRequest","code":400}"#,
        ),
        (
            Status::unauthorized(),
            r#""Unauthorized","reason":"Unauthorized","code":401}"#,
        ),
        (
            Status::not_found(DEPLOYMENTS, "d1"),
            r#""deployments.apps \"d1\" not found","reason":"NotFound","details":{"name":"d1","group":"apps","kind":"deployments"},"code":404}"#,
        ),
        (
            Status::not_found(GroupResource::new("", "configmaps"), "a\0b"),
            r#""configmaps \"a\\x00b\" not found","reason":"NotFound","details":{"name":"a\u0000b","kind":"configmaps"},"code":404}"#,
        ),
        (
            Status::unknown_path(),
            r#""the server could not find the requested resource","reason":"NotFound","details":{},"code":404}"#,
        ),
        (
            Status::method_not_allowed(),
            r#""the server does not allow this method on the requested resource","reason":"MethodNotAllowed","details":{},"code":405}"#,
        ),
        (
            Status::method_not_supported(GroupResource::new("example.com", "foos"), "create"),
            r#""create is not supported on resources of kind \"foos.example.com\"","reason":"MethodNotAllowed","details":{"group":"example.com","kind":"foos"},"code":405}"#,
        ),
        (
            Status::not_acceptable("only x"),
            r#""only x","reason":"NotAcceptable","code":406}"#,
        ),
        (
            Status::modified(DEPLOYMENTS, "d1"),
            r#""Operation cannot be fulfilled on deployments.apps \"d1\": the object has been modified; please apply your changes to the latest version and try again","reason":"Conflict","details":{"name":"d1","group":"apps","kind":"deployments"},"code":409}"#,
        ),
        (
            Status::already_exists(GroupResource::new("", "namespaces"), "x"),
            r#""namespaces \"x\" already exists","reason":"AlreadyExists","details":{"name":"x","kind":"namespaces"},"code":409}"#,
        ),
        (
            Status::being_deleted(GroupResource::new("", "configmaps"), "fin"),
            r#""object is being deleted: configmaps \"fin\" already exists","reason":"AlreadyExists","details":{"name":"fin","kind":"configmaps"},"code":409}"#,
        ),
        (
            Status::generated_name_exists(PODS, "p-x", 1),
            r#""pods \"p-x\" already exists, the server was not able to generate a unique name for the object","reason":"AlreadyExists","details":{"name":"p-x","kind":"pods","retryAfterSeconds":1},"code":409}"#,
        ),
        (
            Status::too_large("limit is 3145728"),
            r#""Request entity too large: limit is 3145728","reason":"RequestEntityTooLarge","code":413}"#,
        ),
        (
            Status::unsupported_media_type(&["application/json", "application/yaml"]),
            r#""the body of the request was in an unknown format - accepted media types include: application/json, application/yaml","reason":"UnsupportedMediaType","code":415}"#,
        ),
        (
            Status::too_many_requests("slow down", 1),
            r#""slow down","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}"#,
        ),
    ] {
        assert_eq!(tail(&status), expected);
    }
}

#[test]
fn server_errors_read_as_in_kubernetes() {
    for (status, expected) in [
        (
            Status::internal("X"),
            r#""Internal error occurred: X","reason":"InternalError","details":{"causes":[{"message":"X"}]},"code":500}"#,
        ),
        (
            Status::untyped("target.name: Required value"),
            r#""target.name: Required value","code":500}"#,
        ),
        (
            Status::server_timeout(GroupResource::new("", "foos"), "create", 2),
            r#""The create operation against foos could not be completed at this time, please try again.","reason":"ServerTimeout","details":{"name":"create","kind":"foos","retryAfterSeconds":2},"code":500}"#,
        ),
        (
            Status::too_large_resource_version(9_999_999, 221),
            r#""Timeout: Too large resource version: 9999999, current: 221","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#,
        ),
        (
            Status::deadline_exceeded(),
            r#"{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted timeout","reason":"Timeout","details":{},"code":504}"#,
        ),
    ] {
        assert_eq!(tail(&status), expected);
    }
}

#[test]
fn forbidden_says_who_what_and_where() {
    for (status, expected) in [
        (
            forbidden("GET", "/api/v1/namespaces/ns/pods", ""),
            r#""pods is forbidden: User \"u\" cannot list resource \"pods\" in API group \"\" in the namespace \"ns\"","reason":"Forbidden","details":{"kind":"pods"},"code":403}"#,
        ),
        (
            forbidden("GET", "/api/v1/namespaces/ns/pods/p1", ""),
            r#""pods \"p1\" is forbidden: User \"u\" cannot get resource \"pods\" in API group \"\" in the namespace \"ns\"","reason":"Forbidden","details":{"name":"p1","kind":"pods"},"code":403}"#,
        ),
        (
            forbidden("POST", "/api/v1/namespaces/ns/pods/p/exec?command=ls", ""),
            r#""pods \"p\" is forbidden: User \"u\" cannot create resource \"pods/exec\" in API group \"\" in the namespace \"ns\"","reason":"Forbidden","details":{"name":"p","kind":"pods"},"code":403}"#,
        ),
        (
            forbidden("GET", "/apis/apps/v1/deployments", "no rule"),
            r#""deployments.apps is forbidden: User \"u\" cannot list resource \"deployments\" in API group \"apps\" at the cluster scope: no rule","reason":"Forbidden","details":{"group":"apps","kind":"deployments"},"code":403}"#,
        ),
        (
            forbidden("GET", "/x", ""),
            r#""forbidden: User \"u\" cannot get path \"/x\"","reason":"Forbidden","details":{},"code":403}"#,
        ),
        (
            Status::namespace_terminating(GroupResource::new("", "configmaps"), "late", "end"),
            r#""configmaps \"late\" is forbidden: unable to create new content in namespace end because it is being terminated","reason":"Forbidden","details":{"name":"late","kind":"configmaps","causes":[{"reason":"NamespaceTerminating","message":"namespace end is being terminated","field":"metadata.namespace"}]},"code":403}"#,
        ),
    ] {
        assert_eq!(tail(&status), expected);
    }
}

#[test]
fn successes_carry_no_message() {
    let text = |status: &Status| String::from_utf8(json::to_vec(status).unwrap()).unwrap();
    assert_eq!(
        text(&Status::success(DEPLOYMENTS, "fg", "u-1")),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":{"name":"fg","group":"apps","kind":"deployments","uid":"u-1"}}"#
    );
    assert_eq!(
        text(&Status::created()),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}"#
    );
}

#[test]
fn a_status_knows_its_code_and_retry_after() {
    assert_eq!(Status::success(PODS, "p", "").code(), 200);
    assert_eq!(Status::created().code(), 201);
    assert_eq!(Status::unauthorized().code(), 401);
    let mut without_code = Status::unauthorized();
    without_code.code = 0;
    assert_eq!(without_code.code(), 500);
    assert_eq!(Status::unauthorized().retry_after(), None);
    assert_eq!(Status::unknown_path().retry_after(), None);
    assert_eq!(
        Status::service_unavailable("x")
            .with_retry_after(7)
            .retry_after(),
        Some(7)
    );
    assert_eq!(Status::deadline_exceeded().retry_after(), None);
}

#[test]
fn field_faults_have_kubernetes_forms() {
    let long: &[&str] = &["Role", "ClusterRole"];
    for (cause, reason, message) in [
        (
            StatusCause::required("f", ""),
            "FieldValueRequired",
            "Required value",
        ),
        (
            StatusCause::required("f", "name is required"),
            "FieldValueRequired",
            "Required value: name is required",
        ),
        (
            StatusCause::invalid("f", "a b", "must be x"),
            "FieldValueInvalid",
            r#"Invalid value: "a b": must be x"#,
        ),
        (
            StatusCause::invalid("f", -1, "must be positive"),
            "FieldValueInvalid",
            "Invalid value: -1: must be positive",
        ),
        (
            StatusCause::invalid("f", true, ""),
            "FieldValueInvalid",
            "Invalid value: true",
        ),
        (
            StatusCause::invalid("f", ["/x"], "no"),
            "FieldValueInvalid",
            r#"Invalid value: ["/x"]: no"#,
        ),
        (
            StatusCause::invalid("f", serde_json::json!({"a": "<"}), "no"),
            "FieldValueInvalid",
            r#"Invalid value: {"a":"\u003c"}: no"#,
        ),
        (
            StatusCause::invalid("f", serde_json::Value::Null, "field is immutable"),
            "FieldValueInvalid",
            "Invalid value: null: field is immutable",
        ),
        (
            StatusCause::not_supported("f", "", long),
            "FieldValueNotSupported",
            r#"Unsupported value: "": supported values: "Role", "ClusterRole""#,
        ),
        (
            StatusCause::not_supported("f", ["bogus"], ["All"]),
            "FieldValueNotSupported",
            r#"Unsupported value: ["bogus"]: supported values: "All""#,
        ),
        (
            StatusCause::not_supported("f", "x", [""; 0]),
            "FieldValueNotSupported",
            r#"Unsupported value: "x""#,
        ),
        (
            StatusCause::duplicate("f", "a"),
            "FieldValueDuplicate",
            r#"Duplicate value: "a""#,
        ),
        (
            StatusCause::not_found("f", "v"),
            "FieldValueNotFound",
            r#"Not found: "v""#,
        ),
        (
            StatusCause::forbidden("f", "may not be set"),
            "FieldValueForbidden",
            "Forbidden: may not be set",
        ),
        (
            StatusCause::too_long("f", 128),
            "FieldValueTooLong",
            "Too long: may not be more than 128 bytes",
        ),
        (
            StatusCause::too_long("f", 1),
            "FieldValueTooLong",
            "Too long: may not be more than 1 byte",
        ),
        (
            StatusCause::too_many("f", 5, 4),
            "FieldValueTooMany",
            "Too many: 5: must have at most 4 items",
        ),
        (
            StatusCause::too_many("f", 2, 1),
            "FieldValueTooMany",
            "Too many: 2: must have at most 1 item",
        ),
        (
            StatusCause::internal("f", "broken"),
            "InternalError",
            "Internal error: broken",
        ),
    ] {
        assert_eq!(
            (
                cause.reason.as_str(),
                cause.message.as_str(),
                cause.field.as_str()
            ),
            (reason, message, "f")
        );
    }
}

#[test]
fn invalid_objects_tell_each_fault_once_in_the_message_and_all_in_the_causes() {
    let kind = GroupKind::new("apps", "Deployment");
    let negative =
        || StatusCause::invalid("spec.replicas", -1, "must be greater than or equal to 0");
    assert_eq!(
        tail(&Status::invalid(kind, "d1", vec![negative()])),
        r#""Deployment.apps \"d1\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0","reason":"Invalid","details":{"name":"d1","group":"apps","kind":"Deployment","causes":[{"reason":"FieldValueInvalid","message":"Invalid value: -1: must be greater than or equal to 0","field":"spec.replicas"}]},"code":422}"#
    );
    let several = Status::invalid(
        kind,
        "d",
        vec![
            negative(),
            StatusCause::required("spec.selector", ""),
            negative(),
        ],
    );
    assert_eq!(
        several.message,
        "Deployment.apps \"d\" is invalid: [spec.replicas: Invalid value: -1: must be greater than or equal to 0, \
         spec.selector: Required value]"
    );
    assert_eq!(several.details.as_ref().unwrap().causes.len(), 3);
    let twice = Status::invalid(GroupKind::new("", "Pod"), "", vec![negative(), negative()]);
    assert_eq!(
        twice.message,
        "Pod \"\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"
    );
    assert_eq!(
        Status::invalid(GroupKind::new("", "Pod"), "p", vec![]).message,
        "Pod \"p\" is invalid"
    );
}

#[test]
fn an_object_with_very_many_faults_gets_an_answer_of_bounded_size() {
    let faults = (0..200_000).map(|i| StatusCause::required(format!("spec.list[{i}]"), ""));
    let status = Status::invalid(GroupKind::new("", "Pod"), "p", faults.collect());
    let causes = &status.details.as_ref().unwrap().causes;
    assert_eq!(causes.len(), 257);
    assert_eq!(causes[255].field, "spec.list[255]");
    assert_eq!(causes[256].message, "and 199744 more");
    assert!(status.message.ends_with(", and 199744 more]"));
}

#[test]
fn generic_messages_follow_from_the_code() {
    for (code, given, reason, message) in [
        (
            400,
            "",
            "BadRequest",
            "the server rejected our request for an unknown reason",
        ),
        (
            401,
            "",
            "Unauthorized",
            "the server has asked for the client to provide credentials",
        ),
        (403, "why", "Forbidden", "why"),
        (
            406,
            "",
            "NotAcceptable",
            "the server was unable to respond with a content type that the client supports",
        ),
        (406, "only x", "NotAcceptable", "only x"),
        (409, "", "Conflict", "the server reported a conflict"),
        (
            415,
            "415: Unsupported Media Type",
            "UnsupportedMediaType",
            "415: Unsupported Media Type",
        ),
        (
            418,
            "x",
            "",
            "the server responded with the status code 418 but did not return more information",
        ),
        (
            422,
            "",
            "Invalid",
            "the server rejected our request due to an error in our request",
        ),
        (
            429,
            "",
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        ),
        (
            500,
            "a\"b",
            "InternalError",
            "an error on the server (\"a\\\"b\") has prevented the request from succeeding",
        ),
        (
            503,
            "",
            "ServiceUnavailable",
            "the server is currently unable to handle the request",
        ),
        (
            504,
            "",
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be processing the request",
        ),
    ] {
        let status = Status::generic(code, given);
        assert_eq!(
            (status.code, status.reason.as_str(), status.message.as_str()),
            (code, reason, message)
        );
        assert!(status.details.is_some());
    }
}

#[test]
fn plain_answers_keep_their_headers() {
    for (plain, code, body, retry_after, nosniff, close) in [
        (
            PlainError::page_not_found(),
            404,
            "404 page not found\n",
            None,
            true,
            false,
        ),
        (
            PlainError::malformed_request(),
            400,
            "400 Bad Request",
            None,
            false,
            true,
        ),
        (
            PlainError::too_many_requests(1),
            429,
            "Too many requests, please try again later.\n",
            Some(1),
            true,
            false,
        ),
        (
            PlainError::panicked(),
            500,
            "This request caused apiserver to panic. Look in the logs for details.\n",
            None,
            true,
            false,
        ),
        (
            PlainError::internal_server_error("/x?<&>", "no RequestInfo found in the context"),
            500,
            "Internal Server Error: \"/x?&lt;&amp;&gt;\": no RequestInfo found in the context\n",
            None,
            true,
            false,
        ),
    ] {
        assert_eq!(
            (
                plain.code,
                plain.body.as_ref(),
                plain.retry_after,
                plain.nosniff,
                plain.close
            ),
            (code, body, retry_after, nosniff, close)
        );
    }
}

#[test]
fn statuses_of_other_servers_are_read_leniently() {
    let status: Status = serde_json::from_str(
        r#"{"code":404,"reason":"NotFound","status":"Failure","metadata":{"selfLink":"x"},"extra":1,
            "details":{"causes":null,"kind":"pods"},"message":"m","apiVersion":"v1","kind":"Status"}"#,
    )
    .unwrap();
    assert_eq!(
        tail(&status),
        r#""m","reason":"NotFound","details":{"kind":"pods"},"code":404}"#
    );
}
